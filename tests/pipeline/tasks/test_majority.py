"""The majority floor answers what training answers say, and never looks at a text."""

import pytest

from data_prep.errors import UsageError
from pipeline.config.schema import Config
from pipeline.tasks.config import TaskConfig
from pipeline.tasks.examples import Example
from pipeline.tasks.majority import answer_majority
from pipeline.tasks.splits import Splits


def test_the_commonest_label_answers_everything() -> None:
    train = [Example((f"{i}",), "yes" if i % 3 else "no", "", 0) for i in range(9)]
    test = [Example((f"{i}",), "yes" if i < 4 else "no", "", 0) for i in range(10)]
    outcome = answer_majority(Splits(train, test, test, ["no", "yes"]), TaskConfig(name="toy"))
    assert outcome.scores["accuracy"] == 0.4
    assert {(guess.answer, guess.confidence) for guess in outcome.predictions} == {("yes", 6 / 9)}


def test_the_mean_answers_every_number_and_tells_nothing_apart() -> None:
    examples = [Example(("a", "b"), float(i), "", 0) for i in range(5)]
    task = TaskConfig(name="toy", kind="regress", metric="pearson", text_b="other")
    outcome = answer_majority(Splits(examples, examples, examples, []), task)
    assert outcome.predictions[0].answer == 2.0
    assert outcome.scores["pearson"] == 0.0


def test_the_commonest_tag_finds_no_entity() -> None:
    examples = [Example(("in", "New", "York"), ("O", "B-place", "O"), "", 0)]
    task = TaskConfig(name="toy", kind="tag", reader="conll", metric="entity_f1")
    labels = ["O", "B-place", "I-place"]
    outcome = answer_majority(Splits(examples, examples, examples, labels), task)
    assert outcome.predictions[0].answer == ("O", "O", "O")
    assert outcome.scores["entity_f1"] == 0.0


@pytest.mark.parametrize(
    ("encoder", "kind"), [("majority", "span"), (["majority", "glove.txt"], "classify")]
)
def test_what_majority_cannot_do_is_refused(encoder: object, kind: str) -> None:
    with pytest.raises(UsageError, match="majority stands alone"):
        Config(encoder=encoder, task=TaskConfig(kind=kind)).check()
