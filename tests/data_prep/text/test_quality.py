"""Each published rule rejects what it describes, by its own name; thresholds can be changed."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep.config import CorpusConfig
from data_prep.errors import UsageError
from data_prep.quality_rules import FINEWEB, GOPHER
from data_prep.text.quality import (
    MEASURES,
    Measures,
    QualityFilter,
    repeated_run_share,
    top_run_share,
)

DRAW = random.Random(5)
NOUNS = ["".join(DRAW.choices("abcdefghij", k=DRAW.randint(3, 7))) for _ in range(300)]
LINES = [f"The {' '.join(DRAW.choices(NOUNS, k=11))} of that." for _ in range(12)]
PROSE = "\n".join(LINES)
BOTH = {"filters": ["gopher", "fineweb"]}


def reason(text: str, language: str | None = "en", **keys: Any) -> str | None:
    return QualityFilter(CorpusConfig(**(keys or BOTH))).reason_to_drop(text, language)


def test_every_rule_has_its_measure_and_the_published_numbers() -> None:
    assert MEASURES.keys() == GOPHER.keys() | FINEWEB.keys()
    assert all("_min_" in rule or "_max_" in rule for rule in MEASURES)
    repetition = [GOPHER[f"gopher_max_repeated_{n}_grams"] for n in range(5, 11)]
    assert repetition == [0.15, 0.14, 0.13, 0.12, 0.11, 0.10]  # table A1


def test_prose_passes_and_nothing_is_measured_unless_asked_for() -> None:
    assert reason(PROSE) is None
    assert reason("#", filters=[]) is None


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("gopher_min_words", " ".join(PROSE.split()[:49])),
        ("gopher_max_words", PROSE + " word" * 100_000),
        ("gopher_min_word_length", "a b to of the " + " ".join(DRAW.choices("abcdefgh", k=60))),
        ("gopher_max_word_length", " ".join(w * 3 for w in NOUNS[:60])),
        ("gopher_max_hashes", PROSE + " #" * 30),
        ("gopher_max_ellipses", PROSE.replace(" ", "… ", 30)),
        ("gopher_max_bullet_lines", "\n".join(f"• {line}" for line in LINES)),
        ("gopher_max_ellipsis_lines", "\n".join([*LINES[:7], *(f"{x}..." for x in LINES[7:])])),
        ("gopher_min_letter_words", PROSE + "\n" + " ".join(map(str, range(1000, 1060)))),
        ("gopher_min_stop_words", " ".join(NOUNS[:80])),
        ("gopher_max_repeated_lines", "\n".join([*LINES, *(f"{w} is" for w in ["ah"] * 9)])),
        ("gopher_max_repeated_paragraphs", f"{PROSE}\n\nSo it is.\n\nSo it is."),
        ("gopher_max_repeated_line_characters", "\n".join([*LINES, *LINES[:4]])),
        ("gopher_max_top_2_grams", PROSE + " " + " ".join(f"{w} of that" for w in NOUNS[:60])),
        ("gopher_max_repeated_5_grams", PROSE + " so " + " ".join(PROSE.split()[2:40])),
        ("fineweb_min_punctuated_lines", "\n".join(line.rstrip(".") for line in LINES)),
        ("fineweb_max_short_lines", "\n".join([*LINES, *(f"{w} is {w}s." for w in NOUNS[:30])])),
    ],
)  # fmt: skip
def test_each_rule_rejects_what_it_describes(rule: str, text: str) -> None:
    assert reason(text) == rule


def test_thresholds_can_be_changed_and_turned_off() -> None:
    short = " ".join(PROSE.split()[:30]) + "."
    assert reason(short) == "gopher_min_words"
    assert reason(short, **BOTH, thresholds={"gopher_min_words": 20}) is None
    assert reason(short, **BOTH, thresholds={"gopher_min_words": None}) is None
    runs = PROSE + " so " + " ".join(PROSE.split()[2:40])
    off = {"gopher_max_repeated_5_grams": None}
    assert reason(runs, **BOTH, thresholds=off) == "gopher_max_repeated_6_grams"


@pytest.mark.parametrize(
    ("thresholds", "message"),
    [
        ({"gopher_minwords": 2}, r"corpus\.thresholds\.gopher_minwords=2: no rule .*gopher_min_w"),
        ({"gopher_min_words": "x"}, r"corpus\.thresholds\.gopher_min_words=x: must be a number"),
        ({"fineweb_max_short_lines": 1}, r"corpus\.filters \(gopher\) has this name"),
    ],
)
def test_a_threshold_without_its_rule_is_refused(thresholds: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        CorpusConfig(filters=["gopher"], thresholds=thresholds).check()


def test_other_languages_and_scripts_are_judged_by_what_fits_them() -> None:
    swedish = PROSE.replace("The", "Det").replace("of that", "är den")
    assert reason(swedish, "sv") is None
    assert reason(swedish, "en") == "gopher_min_stop_words"
    draw = random.Random(1)
    letters = [chr(0x4E00 + 7 * number) for number in range(400)]
    chinese = "\n".join("".join(draw.choices(letters, k=40)) + "。" for _ in range(5))
    assert reason(chinese, "zh") is None
    assert reason("欢迎光临本店。" * 40, "zh") is not None


WORDS = st.lists(st.sampled_from(["a", "bb", "ccc"]), min_size=1, max_size=40)


@given(WORDS, st.integers(2, 6))
def test_repeated_runs_are_counted_by_their_characters(words: list[str], length: int) -> None:
    """Against the definition, word by word."""
    seen: set[tuple[str, ...]] = set()
    covered: set[int] = set()
    runs = [tuple(words[n : n + length]) for n in range(len(words) - length + 1)]
    for place, run in enumerate(runs):
        if run in seen:
            covered |= set(range(place, place + length))
        seen.add(run)
    total = sum(map(len, words))
    text = Measures(" ".join(words), "en", {})
    expected = sum(len(words[place]) for place in covered) / total
    assert repeated_run_share(length, text) == pytest.approx(expected)
    counts = {run: runs.count(run) for run in runs}
    most = max(counts.values(), default=0)
    sizes = [len("".join(run)) for run, count in counts.items() if count == most]
    expected = min(most * max(sizes) / total, 1.0) if most > 1 else 0.0
    assert top_run_share(length, text) == pytest.approx(expected)
