"""Every score equals its reference on thousands of random predictions."""

import math

import numpy as np
import pytest
import scipy.stats
import seqeval.metrics
import sklearn.metrics

from pipeline.tasks.metrics import confusion, entities, score, scores_by_type


@pytest.mark.parametrize("classes", [2, 3, 7])
@pytest.mark.parametrize("skew", [0.0, 0.5, 0.95])
def test_classification_equals_scikit_learn(classes: int, skew: float) -> None:
    rng = np.random.default_rng(classes)
    labels = [f"label {number}" for number in range(classes)]
    for size in (2, 10, 3000):
        gold = rng.integers(classes, size=size)
        gold[: int(skew * size)] = 0
        predicted = np.where(rng.random(size) < 0.5, gold, rng.integers(classes, size=size))
        names = [[labels[i] for i in numbers] for numbers in (gold, predicted)]
        ours = score("classify", *names, labels)
        average = {"average": "binary"} if classes == 2 else {"average": "macro"}
        assert ours == pytest.approx(
            {
                "accuracy": sklearn.metrics.accuracy_score(gold, predicted),
                "f1": sklearn.metrics.f1_score(
                    gold, predicted, labels=range(classes), zero_division=0, **average
                ),
                "matthews": sklearn.metrics.matthews_corrcoef(gold, predicted),
            },
            abs=1e-12,
        )
        reference = sklearn.metrics.confusion_matrix(*names, labels=labels)
        assert (confusion(*names, labels) == reference).all()


@pytest.mark.parametrize("ties", [False, True])
def test_correlations_equal_scipy(ties: bool) -> None:
    rng = np.random.default_rng(0)
    for size in (2, 30, 3000):
        gold = rng.normal(size=size)
        predicted = gold + rng.normal(size=size)
        if ties:
            gold, predicted = gold.round(), predicted.round()
            gold[0], predicted[0] = 9, 9  # never all equal
        assert score("regress", gold, predicted, []) == pytest.approx(
            {
                "pearson": scipy.stats.pearsonr(gold, predicted)[0],
                "spearman": scipy.stats.spearmanr(gold, predicted)[0],
            },
            abs=1e-12,
        )


def random_tags(rng: np.random.Generator, kinds: int) -> list[str]:
    tags = ["O", *(f"{prefix}-{kind}" for kind in "XYZ"[:kinds] for prefix in "BI")]
    return list(rng.choice(tags, size=rng.integers(1, 30)))


@pytest.mark.parametrize("kinds", [1, 3])
def test_entity_scores_equal_seqeval(kinds: int) -> None:
    """Random tags hold every malformed sequence there is; conlleval's rule decides them."""
    rng = np.random.default_rng(kinds)
    gold = [random_tags(rng, kinds) for _ in range(3000)]
    predicted = [
        [tag if rng.random() < 0.7 else str(rng.choice(["O", "B-X", "I-X"])) for tag in tags]
        for tags in gold
    ]
    ours = score("tag", gold, predicted, [])
    assert ours == pytest.approx(
        {
            "entity_f1": seqeval.metrics.f1_score(gold, predicted),
            "entity_precision": seqeval.metrics.precision_score(gold, predicted),
            "entity_recall": seqeval.metrics.recall_score(gold, predicted),
            "accuracy": seqeval.metrics.accuracy_score(gold, predicted),
        },
        abs=1e-12,
    )
    for tags in gold:
        found = seqeval.metrics.sequence_labeling.get_entities(tags)
        assert entities(tags) == {(kind, start, end + 1) for kind, start, end in found}


def test_scores_by_type_equal_seqevals_report() -> None:
    rng = np.random.default_rng(5)
    gold = [random_tags(rng, 3) for _ in range(2000)]
    predicted = [
        [tag if rng.random() < 0.8 else str(rng.choice(["O", "B-X", "I-Y"])) for tag in tags]
        for tags in gold
    ]
    report = seqeval.metrics.classification_report(gold, predicted, output_dict=True)
    ours = scores_by_type(gold, predicted)
    assert list(ours) == ["X", "Y", "Z"]
    for kind, row in ours.items():
        assert (row["entity_f1"], row["entity_precision"], row["entity_recall"], row["gold"]) == (
            pytest.approx(
                [report[kind][key] for key in ("f1-score", "precision", "recall", "support")]
            )
        )


def test_a_type_is_scored_as_conlleval_does_by_hand() -> None:
    """B-PER I-LOC is two names; a name found with one word too few is wrong."""
    gold = [["B-PER", "I-PER", "O", "B-LOC"], ["B-PER", "O"]]
    predicted = [["B-PER", "O", "O", "I-LOC"], ["B-PER", "I-LOC"]]
    ours = scores_by_type(gold, predicted)
    assert (ours["LOC"]["entity_precision"], ours["LOC"]["entity_recall"]) == (0.5, 1.0)
    assert (ours["PER"]["entity_precision"], ours["PER"]["entity_recall"]) == (0.5, 0.5)
    assert score("tag", gold, predicted, [])["entity_f1"] == pytest.approx(4 / 7)


def test_unequal_lengths_are_refused() -> None:
    for kind, gold, predicted in (
        ("classify", ["a", "b"], ["a"]),
        ("tag", [["O"], ["O"]], [["O"]]),
        ("tag", [["O", "O"]], [["O"]]),
        ("regress", [1.0, 2.0], [1.0]),
    ):
        with pytest.raises(ValueError):
            score(kind, gold, predicted, ["a", "b"])


def test_what_is_not_defined_counts_as_nothing() -> None:
    assert score("regress", [1, 1, 1], [1, 2, 3], []) == {"pearson": 0.0, "spearman": 0.0}
    assert score("tag", [["O"]], [["O"]], [])["entity_f1"] == 0.0
    constant = score("classify", ["a", "b", "a"], ["a", "a", "a"], ["a", "b"])
    assert constant["matthews"] == constant["f1"] == 0.0
    assert all(math.isfinite(value) for value in constant.values())
