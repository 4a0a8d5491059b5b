"""AllenNLP's pair: what it means by a plain computation of its own, round trips, and bad files."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

from data_prep.errors import SesameError, UsageError
from data_prep.tokenizers.characters import character_ids
from pipeline.encoders import load_encoder
from pipeline.encoders.elmo import ElmoEncoder
from pipeline.models.elmo.allennlp import load_allennlp, write_allennlp
from pipeline.models.elmo.allennlp_options import find_pair
from pipeline.models.elmo.config import ElmoConfig
from pipeline.models.elmo.network import Elmo

CONFIG = ElmoConfig(
    cell=11, projection=6, cell_clip=0.4, projection_clip=0.2,
    character_dim=3, filters=[[1, 2], [3, 5]], samples=100, window=7,
)  # fmt: skip
SENTENCES = [("The", "naïve", "東京", "."), ("Hello",), ("w" * 60, "a", "b", "a", "c", "!")]


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def as_allennlp(weights: Path, options: dict[str, Any], words: tuple[str, ...]) -> np.ndarray:
    """Vectors [layers + 1, words, 2 P] from the members themselves, as TensorFlow computes them."""
    with h5py.File(weights) as file:
        embedding = file["char_embed"][...]
        x = []
        for word in character_ids(["<S>", *words, "</S>"]):
            letters = embedding[word.astype(int) - 1]  # [50, characters]
            pooled = []
            for number, (size, _) in enumerate(options["char_cnn"]["filters"]):
                kernel = file[f"CNN/W_cnn_{number}"][0]  # [width, characters, filters]
                windows = [letters[i : i + size] for i in range(len(letters) - size + 1)]
                values = np.stack([np.einsum("wc,wcf->f", each, kernel) for each in windows])
                pooled.append(np.maximum(values.max(0) + file[f"CNN/b_cnn_{number}"][...], 0))
            value = np.concatenate(pooled)
            for number in range(options["char_cnn"]["n_highway"]):
                group = file[f"CNN_high_{number}"]
                carry = sigmoid(value @ group["W_carry"][...] + group["b_carry"][...])
                new = np.maximum(value @ group["W_transform"][...] + group["b_transform"][...], 0)
                value = carry * new + (1 - carry) * value
            x.append(value @ file["CNN_proj/W_proj"][...] + file["CNN_proj/b_proj"][...])
        layers = [[np.stack(x)], [np.stack(x)[::-1]]]
        lstm = options["lstm"]
        for direction, outputs in enumerate(layers):
            for layer in range(lstm["n_layers"]):
                cell = file[f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"]
                read = as_tensorflow_cell(cell, outputs[-1], lstm)
                outputs.append(read + outputs[-1] if layer else read)
    both = [np.concatenate([f, b[::-1]], 1) for f, b in zip(*layers, strict=True)]
    return np.stack(both)[:, 1:-1]


def as_tensorflow_cell(cell: h5py.Group, inputs: np.ndarray, lstm: dict[str, Any]) -> np.ndarray:
    memory, state, outputs = np.zeros(lstm["dim"]), np.zeros(lstm["projection_dim"]), []
    for x in inputs:
        i, j, f, o = np.split(np.concatenate([x, state]) @ cell["W_0"][...] + cell["B"][...], 4)
        memory = sigmoid(f + 1) * memory + sigmoid(i) * np.tanh(j)
        memory = np.clip(memory, -lstm["cell_clip"], lstm["cell_clip"])
        state = (sigmoid(o) * np.tanh(memory)) @ cell["W_P_0"][...]
        state = np.clip(state, -lstm["proj_clip"], lstm["proj_clip"])
        outputs.append(state)
    return np.stack(outputs)


def make(config: ElmoConfig = CONFIG) -> Elmo:
    torch.manual_seed(0)
    elmo = Elmo(config).eval()
    for name, parameter in elmo.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter)
    return elmo


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("pair")
    write_allennlp(made, make())
    return made


def test_vectors_are_those_that_the_files_mean(folder: Path) -> None:
    encoder = load_encoder(folder).eval()
    assert isinstance(encoder, ElmoEncoder)
    options = json.loads((folder / "options.json").read_text())
    inputs = encoder.encode_words([(words,) for words in SENTENCES], 100)
    with torch.no_grad():
        batch = inputs.batch(np.arange(len(SENTENCES)))
        states = torch.stack([state[batch.word_starts_W] for state in encoder(batch)]).numpy()
    expected = [as_allennlp(folder / "weights.hdf5", options, words) for words in SENTENCES]
    np.testing.assert_allclose(states, np.concatenate(expected, 1), atol=1e-6)
    assert states.shape == (3, 11, 12)


@pytest.mark.parametrize("clips", [(0.4, 0.2), (0.0, 0.0)])
def test_what_is_written_reads_back_the_same(tmp_path: Path, clips: tuple[float, float]) -> None:
    elmo = make(replace(CONFIG, cell_clip=clips[0], projection_clip=clips[1]))
    write_allennlp(tmp_path, elmo)
    again = load_allennlp(tmp_path)
    assert again.config == elmo.config
    for name, tensor in elmo.state_dict().items():
        torch.testing.assert_close(again.state_dict()[name], tensor, atol=1e-6, rtol=0)


def test_published_names_are_found_and_two_pairs_are_not_guessed_between(
    folder: Path, tmp_path: Path
) -> None:
    for name in ("options.json", "weights.hdf5"):
        (tmp_path / f"elmo_2x11_6_{name}").write_bytes((folder / name).read_bytes())
    assert load_allennlp(tmp_path).config == CONFIG
    (tmp_path / "options.json").write_text("{}")
    with pytest.raises(UsageError, match=r"2 files that end in options\.json"):
        find_pair(tmp_path)


def without(name: str) -> Callable[[h5py.File], None]:
    return lambda file: file.__delitem__(name)


def misshapen(file: h5py.File) -> None:
    del file["CNN/b_cnn_1"]
    file["CNN/b_cnn_1"] = np.zeros(4, np.float32)


def not_numbers(file: h5py.File) -> None:
    del file["CNN/b_cnn_1"]
    file["CNN/b_cnn_1"] = np.array([b"text"] * 5)


def replaced(make: Callable[[h5py.Group], Any]) -> Callable[[h5py.File], None]:
    """Put something else where a bias of five numbers was."""

    def replace_bias(file: h5py.File) -> None:
        del file["CNN/b_cnn_1"]
        make(file["CNN"])

    return replace_bias


def external_group(file: h5py.File) -> None:
    del file["CNN"]
    file["CNN"] = h5py.ExternalLink("/etc/hostname", "/")


def add_virtual(group: h5py.Group) -> None:
    layout = h5py.VirtualLayout((5,), np.float32)
    layout[:] = h5py.VirtualSource("/etc/hostname", "x", shape=(5,))
    group.create_virtual_dataset("b_cnn_1", layout)


external_link = replaced(lambda group: group.update(b_cnn_1=h5py.ExternalLink("/etc/passwd", "/x")))
soft_link = replaced(lambda group: group.update(b_cnn_1=h5py.SoftLink("/CNN/b_cnn_0")))
external_storage = replaced(
    lambda group: group.create_dataset(
        "b_cnn_1", (5,), np.float32, external=[("/etc/passwd", 0, 20)]
    )
)
virtual = replaced(add_virtual)
compressed = replaced(
    lambda group: group.create_dataset("b_cnn_1", data=np.zeros(5, "f4"), compression="gzip")
)
never_written = replaced(lambda group: group.create_dataset("b_cnn_1", (5,), np.float32))
not_finite = replaced(lambda group: group.create_dataset("b_cnn_1", data=np.full(5, np.nan, "f4")))


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (without("char_embed"), r"weights\.hdf5: has no char_embed"),
        (without("RNN_1/RNN/MultiRNNCell/Cell1"), r"has no RNN_1/RNN/MultiRNNCell/Cell1/LSTM"),
        (misshapen, r"CNN/b_cnn_1 is float32 \[4\], but the options ask for floats \[5\]"),
        (not_numbers, r"CNN/b_cnn_1 is \|S4 \[5\]"),
        (external_link, "CNN/b_cnn_1 is a link, which is not followed"),
        (soft_link, "CNN/b_cnn_1 is a link, which is not followed"),
        (external_group, "CNN/W_cnn_0 is a link, which is not followed"),
        (external_storage, "CNN/b_cnn_1 lies in another file, which is not opened"),
        (virtual, "CNN/b_cnn_1 lies in another file, which is not opened"),
        (compressed, "CNN/b_cnn_1 is compressed or incomplete; h5repack"),
        (never_written, "CNN/b_cnn_1 is compressed or incomplete"),
        (not_finite, "CNN/b_cnn_1 holds a number that is not finite"),
    ],
)
def test_missing_and_misshapen_members_are_named(
    folder: Path, tmp_path: Path, damage: Callable[[h5py.File], None], says: str
) -> None:
    for name in ("options.json", "weights.hdf5"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    with h5py.File(tmp_path / "weights.hdf5", "r+") as file:
        damage(file)
    with pytest.raises(SesameError, match=says):
        load_allennlp(tmp_path)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda o: o.pop("lstm"), r"options\.json: has no 'lstm'"),
        (lambda o: o["lstm"].update(use_skip_connections=False), "use_skip_connections"),
        (lambda o: o["lstm"].update(projection_dim=99), r"options\.json: model\.projection=99"),
        (lambda o: o["char_cnn"].update(n_characters=60), "n_characters is 60"),
        (lambda o: o["char_cnn"].update(activation="gelu"), "must be one of relu, tanh"),
        (lambda o: o["char_cnn"].update(filters=3), "not the JSON of an ELMo's options"),
        (lambda o: o["char_cnn"].update(max_characters_per_token=10**9), "must be at most 1000"),
        (lambda o: o["char_cnn"].update(filters=[[1, 2**40]]), r"model\.filters: .* up to 65536"),
        (lambda o: o["char_cnn"].update(filters=[["1", 2]]), r"model\.filters: must be of type"),
        (lambda o: o["lstm"].update(n_layers=-1), r"model\.layers=-1: must be at least 1"),
        (lambda o: o["lstm"].update(n_layers=90), r"has no RNN_0/RNN/MultiRNNCell/Cell2"),
        (lambda o: o["lstm"].update(dim=60_000), r"W_0 is float32 \[12, 44\], but .* 240000\]"),
    ],
)
def test_bad_options_are_named(
    folder: Path, tmp_path: Path, change: Callable[[dict[str, Any]], Any], says: str
) -> None:
    options = json.loads((folder / "options.json").read_text())
    change(options)
    (tmp_path / "options.json").write_text(json.dumps(options))
    (tmp_path / "weights.hdf5").write_bytes((folder / "weights.hdf5").read_bytes())
    with pytest.raises(SesameError, match=says):
        load_allennlp(tmp_path)


def test_files_that_are_something_else_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no pair"):
        load_allennlp(tmp_path)
    (tmp_path / "options.json").write_bytes((folder / "options.json").read_bytes())
    (tmp_path / "weights.hdf5").write_bytes((folder / "weights.hdf5").read_bytes()[:3000])
    with pytest.raises(SesameError, match=r"weights\.hdf5: damaged or not an HDF5 file"):
        load_allennlp(tmp_path)
    (tmp_path / "options.json").write_text("[")
    with pytest.raises(SesameError, match=r"options\.json, line 1: not JSON"):
        load_allennlp(tmp_path)
