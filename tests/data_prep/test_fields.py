import math
from dataclasses import dataclass

import pytest

from data_prep.errors import UsageError
from data_prep.fields import check, execution, result, result_keys, walk
from pipeline.config.schema import Config
from pipeline.models.bert.config import BertConfig


@dataclass
class Part:
    size: int = result(3, "how many", at_least=1)
    workers: int = execution(2, "processes")
    rate: float = execution(0.5, "how fast", at_least=0.0)
    way: str = result("fast", "which", choices=("fast", "exact"))


@dataclass
class Whole:
    part: Part = result(Part(), "nested")
    names: list[str] = result([], "a list")


def test_only_result_keys_enter_fingerprints() -> None:
    assert result_keys(Part(workers=9)) == {"size": 3, "way": "fast"}
    assert result_keys(Whole(Part(workers=9), ["a"])) == {
        "part": {"size": 3, "way": "fast"},
        "names": ["a"],
    }


def test_a_field_that_came_later_leaves_old_outputs_their_names() -> None:
    @dataclass
    class Grown(Part):
        extra: bool = result(True, "new", is_later=True)

    assert result_keys(Grown()) == result_keys(Part())
    assert result_keys(Grown(extra=False)) == result_keys(Part()) | {"extra": False}


def test_mutable_defaults_are_not_shared() -> None:
    first, second = Whole(), Whole()
    first.names.append("x")
    first.part.size = 7
    assert second == Whole()


@pytest.mark.parametrize(
    ("part", "says"),
    [
        (Part(size=0), "part.size=0: must be at least 1"),
        (Part(rate=math.nan), "part.rate=nan: must be a finite number"),
        (Part(rate=math.inf), "part.rate=inf: must be a finite number"),
        (Part(way="exakt"), "part.way=exakt: must be one of fast, exact (did you mean exact?)"),
    ],
)
def test_a_value_outside_the_rule_is_refused_by_full_name(part: Part, says: str) -> None:
    with pytest.raises(UsageError) as raised:
        check(Whole(part))
    assert str(raised.value) == says


def test_every_config_field_says_what_it_means() -> None:
    rows = list(walk(Config(model=BertConfig())))
    assert len(rows) > 80
    assert [key for key, rule, _ in rows if not rule.help] == []


@pytest.mark.parametrize(
    ("key", "is_result"),
    [
        ("trainer.max_steps", True),
        ("trainer.global_batch_size", True),
        ("trainer.precision", True),
        ("optim.lr", True),
        ("model.hidden", True),
        ("examples.seed", True),
        ("trainer.devices", False),
        ("trainer.strategy", False),
        ("trainer.micro_batch_size", False),
        ("trainer.checkpoint_every", False),
        ("corpus.paths", False),
        ("corpus.workers", False),
        ("tracking.mode", False),
        ("paths.store", False),
    ],
)
def test_what_shapes_the_result_and_what_does_not(key: str, is_result: bool) -> None:
    rules = {name: rule for name, rule, _ in walk(Config(model=BertConfig()))}
    assert rules[key].is_result is is_result
