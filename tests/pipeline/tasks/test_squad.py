"""SQuAD's files are read with every answer in its place, and scored by the official rules."""

import collections
import json
import math
import random
import re
import string
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_prep.errors import SesameError
from pipeline.tasks.config import TaskConfig
from pipeline.tasks.examples import Example, TaskFile
from pipeline.tasks.squad import read_squad
from pipeline.tasks.squad_scores import best_threshold, normalise, squad_scores

PASSAGE = "Ann Lee met Bo in Paris. Later Ann Lee left Paris."


def question(*answers: tuple[str, int], text: str = "Who?", **more: Any) -> dict[str, Any]:
    found = [{"text": answer, "answer_start": start} for answer, start in answers]
    return {"question": text, "answers": found, **more}


def write(folder: Path, *questions: dict[str, Any], passage: str = PASSAGE) -> TaskFile:
    qas = [
        {"id": f"q{number}", **each} if isinstance(each, dict) else each
        for number, each in enumerate(questions, 1)
    ]
    data = [{"title": "t", "paragraphs": [{"context": passage, "qas": qas}]}]
    path = folder / "squad.json"
    path.write_text(json.dumps({"version": "1.1", "data": data}))
    return TaskFile(path)


def task(**settings: Any) -> TaskConfig:
    return TaskConfig(kind="span", reader="squad", metric="f1", **settings)


def test_questions_come_with_their_passage_and_all_answers(tmp_path: Path) -> None:
    file = write(tmp_path, question(("Bo", 12), ("Ann Lee", 0)), question(("Paris", 44)))
    assert list(read_squad(file, task())) == [
        Example(("Who?", PASSAGE), ("Bo", "Ann Lee"), "data[0]", 1, "q1", 12),
        Example(("Who?", PASSAGE), ("Paris",), "data[0]", 2, "q2", 44),
    ]
    assert not file.repairs


def test_an_answer_beside_its_offset_is_moved_to_the_nearest_and_counted(tmp_path: Path) -> None:
    file = write(tmp_path, question(("Paris", 43)), question(("Paris", 2)), question(("Bo", -1)))
    assert [example.answer_start for example in read_squad(file, task())] == [44, 18, 12]
    assert file.repairs == {"moved answers": 3}


def test_no_two_questions_have_one_id(tmp_path: Path) -> None:
    """Answers are written by id, so one of them would be lost."""
    file = write(tmp_path, question(("Bo", 12), id="x"), question(("Bo", 12), id="x"))
    with pytest.raises(SesameError, match=r"qas\[1\]: another question has the same id"):
        list(read_squad(file, task()))


def test_half_a_surrogate_pair_is_replaced_and_moves_no_answer(tmp_path: Path) -> None:
    file = write(tmp_path, question(("Bo", 12)), passage=PASSAGE.replace("Ann", "A\ud83dn"))
    [example] = read_squad(file, task())
    assert (example.texts[1][:3], example.answer_start) == ("A\ufffdn", 12)
    assert file.repairs == {"lone surrogates": 1}


def test_questions_without_an_answer_belong_to_version_two(tmp_path: Path) -> None:
    file = write(tmp_path, question(is_impossible=True, plausible_answers=[]), question(("Bo", 12)))
    none, one = read_squad(file, task(unanswerable=True))
    assert (none.gold, none.answer_start) == ((), None)
    assert one.gold == ("Bo",)
    with pytest.raises(SesameError, match=r"task\.unanswerable=true"):
        list(read_squad(file, task()))


def test_faulty_questions_are_dropped_and_counted_where_asked(tmp_path: Path) -> None:
    faulty = [question(("secret", 3)), question(("", 0)), question(("Bo", 12), text=" ")]
    file = write(tmp_path, *faulty, question(("Bo", 12)))
    (left,) = read_squad(file, task(faulty="drop"))
    assert left.line == 4
    assert file.repairs == {"dropped": 3}


def test_a_file_without_labels_may_lack_answers(tmp_path: Path) -> None:
    bare = {"id": "q7", "question": "Who?"}
    file = TaskFile(write(tmp_path, bare).path, has_labels=False)
    assert [(e.id, e.gold) for e in read_squad(file, task())] == [("q7", None)]
    with pytest.raises(
        SesameError, match=r"qas\[0\]: no list answers"
    ):  # scored, it must have them
        list(read_squad(TaskFile(file.path), task()))


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (
            question(("secret", 3)),
            r"qas\[0\]: an answer does not occur in its passage.*faulty=drop",
        ),
        (question(("Bo", 12), text=""), r"squad\.json:data\[0\].*qas\[0\]: the question is empty"),
        (question(("Bo", 12)) | {"id": 7}, r"data\[0\]\.paragraphs\[0\]\.qas\[0\]: no string id"),
        ("secret", r"qas\[0\]: no string question"),
    ],
)
def test_faults_name_file_and_place_but_never_the_text(
    tmp_path: Path, content: Any, fault: str
) -> None:
    with pytest.raises(SesameError, match=fault) as caught:
        list(read_squad(write(tmp_path, content), task()))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b'{"data": [\n{"secret"', r"squad\.json:2: not JSON at character"),
        (b'{"data": "secret"}', r"squad\.json:top: no list data"),
        (b'{"data": ["\xff"]}', r"squad\.json: byte 11 is not UTF-8"),
        (b'{"data": ' + b"7" * 5000 + b"}", r"squad\.json: its JSON has a number of thousands"),
        (b"[" * 100_000, r"squad\.json: its JSON .* is nested too deeply"),
    ],
)
def test_what_is_no_squad_file_is_refused(tmp_path: Path, content: bytes, fault: str) -> None:
    path = tmp_path / "squad.json"
    path.write_bytes(content)
    with pytest.raises(SesameError, match=fault) as caught:
        list(read_squad(TaskFile(path), task()))
    assert "secret" not in str(caught.value)


# The rules of the official scripts said again, step by step, for checking ours.


def plain_normalise(text: str) -> str:
    text = "".join(c for c in text.lower() if c not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def plain_f1(prediction: str, truth: str, version: int) -> float:
    found, there = plain_normalise(prediction).split(), plain_normalise(truth).split()
    if version == 2 and (not found or not there):
        return float(found == there)
    same = sum((collections.Counter(found) & collections.Counter(there)).values())
    if same == 0:
        return 0.0
    precision, recall = same / len(found), same / len(there)
    return 2 * precision * recall / (precision + recall)


def plain_scores(golds: list[list[str]], guesses: list[str], version: int) -> tuple[float, float]:
    exact, f1 = [], []
    for truths, guess in zip(golds, guesses, strict=True):
        if version == 2:
            truths = [truth for truth in truths if plain_normalise(truth)] or [""]
        exact.append(max(plain_normalise(guess) == plain_normalise(truth) for truth in truths))
        f1.append(max(plain_f1(guess, truth, version) for truth in truths))
    return sum(exact) / len(exact), sum(f1) / len(f1)


WORDS = [
    "the",
    "The",
    "a",
    "an",
    "cat",
    "Cat's",
    "cat",
    "dog,",
    "(dog)",
    "U.S.",
    "-",
    "’",
    "ä",
    "b",
]


def random_answer(rng: random.Random, most: int = 5) -> str:
    return rng.choice([" ", "  ", "-"]).join(rng.choices(WORDS, k=rng.randint(0, most)))


@pytest.mark.parametrize("version", [1, 2])
def test_scores_equal_the_official_rules_on_random_answers(version: int) -> None:
    rng = random.Random(version)
    least = 0 if version == 2 else 1
    golds = [[random_answer(rng) for _ in range(rng.randint(least, 3))] for _ in range(4000)]
    guesses = [rng.choice([*gold, random_answer(rng)]) for gold in golds]
    ours = squad_scores(golds, guesses, unanswerable=version == 2)
    exact, f1 = plain_scores(golds, guesses, version)
    assert 0.3 < min(exact, f1) <= max(exact, f1) < 0.9
    assert (ours["exact_match"], ours["f1"]) == pytest.approx((exact, f1), abs=1e-12)
    for text in {*guesses, *(answer for gold in golds for answer in gold)}:
        assert normalise(text) == plain_normalise(text)
    if version == 2:
        has = [any(map(plain_normalise, gold)) for gold in golds]
        for name, kind in (("answerable", True), ("unanswerable", False)):
            part = [i for i, own in enumerate(has) if own == kind]
            expected = plain_scores([golds[i] for i in part], [guesses[i] for i in part], 2)
            found = (ours[f"exact_match_{name}"], ours[f"f1_{name}"])
            assert found == pytest.approx(expected, abs=1e-12)


def test_the_threshold_is_the_best_there_is() -> None:
    rng = np.random.default_rng(0)
    for size in [1, 2, 3, *range(4, 60)]:
        margins = rng.integers(-5, 5, size).astype(float)  # many are equal
        gains = rng.choice([-1.0, 0.0, 0.4, 1.0], size)
        found = best_threshold(margins, gains)
        assert math.isfinite(found)  # JSON has no infinity, and a kept model stores it
        totals = {limit: gains[margins <= limit].sum() for limit in [-np.inf, *margins]}
        assert gains[margins <= found].sum() == pytest.approx(max(totals.values()))
