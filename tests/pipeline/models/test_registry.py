"""Every registered family keeps the interface's promises."""

from itertools import pairwise

import pytest
import torch

from data_prep.errors import UsageError
from pipeline.models.bert.network import Losses
from pipeline.models.elmo.config import ElmoConfig
from pipeline.models.elmo.network import ElmoLosses
from pipeline.models.registry import FAMILIES, check_architecture, family_of_folder, model_config
from pipeline.models.sums import Sums

SIZES = {
    "bert": {"layers": 1, "hidden": 8, "heads": 2, "intermediate": 8},
    "elmo": {"layers": 1, "cell": 8, "projection": 4, "filters": [[1, 4]], "max_characters": 5},
}
SUMMED = {
    "bert": (Losses(*map(torch.tensor, (6.0, 2.0, 1.5, 1.0))), {"predictions": 4.0, "pairs": 2.0}),
    "elmo": (ElmoLosses(torch.tensor(6.0), torch.tensor(2.0)), {"words": 4.0}),
}


def objective(name: str):
    family = FAMILIES[name]
    config = model_config({"kind": name} | SIZES[name])
    network, made = family.build(config, 11, rows=2, seed=0, checkpoint_activations=False)
    assert sum(part.numel() for part in network.parameters()) > 0
    return made


@pytest.mark.parametrize("name", FAMILIES)
def test_the_reported_loss_is_the_differentiated_one(name: str) -> None:
    losses, counts = SUMMED[name]
    asked = Sums(counts | {"tokens": 9.0})
    sums = asked + Sums({key: part.item() for key, part in losses._asdict().items()})
    found = objective(name)
    assert found.loss(sums) == pytest.approx(found.mean(losses, asked).item())
    assert found.metrics(sums)["loss"] == found.loss(sums)


@pytest.mark.parametrize("name", FAMILIES)
def test_metrics_have_the_same_names_with_and_without_predictions(name: str) -> None:
    losses, counts = SUMMED[name]
    full = Sums(counts) + Sums({key: part.item() for key, part in losses._asdict().items()})
    found = objective(name)
    assert list(found.metrics(full)) == list(found.metrics(Sums()))


def test_sums_add_by_name_and_take_missing_names_as_zero() -> None:
    parts = [Sums({"a": 1.0}), Sums({"a": 2.0, "b": 0.5}), Sums()]
    assert sum(parts, Sums()) == Sums({"a": 3.0, "b": 0.5})
    assert Sums({"a": 3.0})["b"] == 0.0
    assert Sums({"a": 3.0}).mean("a", "b") is None


@pytest.mark.parametrize("name", FAMILIES)
def test_only_free_options_may_differ_from_the_source(name: str) -> None:
    family = FAMILIES[name]
    ours = model_config({"kind": name} | SIZES[name])
    for option in family.free_to_change:
        theirs = model_config({"kind": name} | SIZES[name] | {option: 7})
        check_architecture(ours, theirs)
    with pytest.raises(UsageError, match=r"model\.layers=1.*set model\.layers=2"):
        check_architecture(ours, model_config({"kind": name} | SIZES[name] | {"layers": 2}))


def test_families_do_not_mix() -> None:
    for first, second in pairwise([*FAMILIES, next(iter(FAMILIES))]):
        with pytest.raises(UsageError, match=rf"model\.kind={first}"):
            check_architecture(FAMILIES[first].config(), FAMILIES[second].config())


def test_a_folder_is_recognised_by_its_files(tmp_path) -> None:
    assert family_of_folder(tmp_path).name == "bert"  # whose reader reports what is missing
    (tmp_path / "options.json").write_text("{}")
    (tmp_path / "weights.hdf5").write_bytes(b"")
    assert family_of_folder(tmp_path).config is ElmoConfig
