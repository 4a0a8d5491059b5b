"""Published scores for the tasks of conf/task/: BERT, ELMo and the best models of their time.

Every score has its split and its source. Published models saw billions of words and all labels of a
task, so a small encoder scores far below them; they show the upper limit.
"""

from collections.abc import Iterator
from dataclasses import dataclass

DEVLIN = "Devlin et al. 2019"
PETERS = "Peters et al. 2018"


@dataclass(frozen=True)
class Published:
    """One score from a paper."""

    task: str  # as conf/task/ names it
    metric: str  # as scores.json names it
    model: str
    split: str
    score: float  # in percent
    source: str
    deviation: float | None = None

    @property
    def printed(self) -> str:
        """The score as the paper prints it, with one decimal or two."""
        digits = 1 if round(self.score, 1) == self.score else 2
        deviation = "" if self.deviation is None else f" ± {self.deviation:.{digits}f}"
        return f"{self.score:.{digits}f}{deviation}"


# The columns of Devlin et al., table 1. CoLA is scored by GLUE's own metric, Matthews correlation.
GLUE_TEST = (
    ("mnli", "accuracy"), ("mnli", "accuracy_mismatched"), ("qqp", "f1"), ("qnli", "accuracy"),
    ("sst2", "accuracy"), ("cola", "matthews"), ("stsb", "spearman"), ("mrpc", "f1"),
    ("rte", "accuracy"), ("glue", "average"),
)  # fmt: skip
GLUE_TEST_SCORES = {
    "BERT base": (84.6, 83.4, 71.2, 90.5, 93.5, 52.1, 85.8, 88.9, 66.4, 79.6),
    "BERT large": (86.7, 85.9, 72.1, 92.7, 94.9, 60.5, 86.5, 89.3, 70.1, 82.1),
    "BiLSTM over ELMo, attention": (76.4, 76.1, 64.8, 79.8, 90.4, 36.0, 73.3, 84.9, 56.8, 71.0),
}
SINGLE = (
    # GLUE's development sets, since its test sets have no public labels.
    Published("mnli", "accuracy", "BERT base", "dev", 84.4, f"{DEVLIN}, table 5"),
    Published("qnli", "accuracy", "BERT base", "dev", 88.4, f"{DEVLIN}, table 5"),
    Published("mrpc", "accuracy", "BERT base", "dev", 86.7, f"{DEVLIN}, table 5"),
    Published("sst2", "accuracy", "BERT base", "dev", 92.7, f"{DEVLIN}, table 5"),
    Published("mnli", "accuracy", "BERT large", "dev", 86.6, f"{DEVLIN}, table 6"),
    Published("mrpc", "accuracy", "BERT large", "dev", 87.8, f"{DEVLIN}, table 6"),
    Published("sst2", "accuracy", "BERT large", "dev", 93.7, f"{DEVLIN}, table 6"),
    Published("squad", "f1", "BERT base", "dev", 88.5, f"{DEVLIN}, table 2"),
    Published("squad", "exact_match", "BERT base", "dev", 80.8, f"{DEVLIN}, table 2"),
    Published("squad", "f1", "BERT large", "dev", 90.9, f"{DEVLIN}, table 2"),
    Published("squad", "exact_match", "BERT large", "dev", 84.1, f"{DEVLIN}, table 2"),
    Published("squad", "f1", "BiDAF over ELMo", "dev", 85.6, f"{DEVLIN}, table 2"),
    Published("squad", "f1", "BiDAF over ELMo", "test", 85.8, f"{PETERS}, table 1"),
    Published("squad2", "f1", "BERT large", "dev", 81.9, f"{DEVLIN}, table 3"),
    Published("squad2", "exact_match", "BERT large", "dev", 78.7, f"{DEVLIN}, table 3"),
    Published("squad2", "f1", "BERT large", "test", 83.1, f"{DEVLIN}, table 3"),
    Published("squad2", "exact_match", "BERT large", "test", 80.0, f"{DEVLIN}, table 3"),
    Published("swag", "accuracy", "BERT base", "dev", 81.6, f"{DEVLIN}, table 4"),
    Published("swag", "accuracy", "BERT large", "dev", 86.6, f"{DEVLIN}, table 4"),
    Published("swag", "accuracy", "BERT large", "test", 86.3, f"{DEVLIN}, table 4"),
    Published("swag", "accuracy", "ESIM over ELMo", "dev", 59.1, f"{DEVLIN}, table 4"),
    Published("swag", "accuracy", "ESIM over ELMo", "test", 59.2, f"{DEVLIN}, table 4"),
    Published("conll2003", "entity_f1", "BERT base", "test", 92.4, f"{DEVLIN}, table 7"),
    Published("conll2003", "entity_f1", "BERT large", "test", 92.8, f"{DEVLIN}, table 7"),
    Published("conll2003", "entity_f1", "ELMo", "test", 92.22, f"{PETERS}, table 1", 0.10),
    Published("conll2003", "entity_f1", "BERT base", "dev", 96.4, f"{DEVLIN}, table 7"),
    Published("conll2003", "entity_f1", "BERT large", "dev", 96.6, f"{DEVLIN}, table 7"),
    Published("conll2003", "entity_f1", "ELMo", "dev", 95.7, f"{DEVLIN}, table 7"),
    Published(
        "wnut17", "entity_f1", "UH-RiTUAL, first of the shared task", "test", 41.86,
        "Aguilar et al. 2017, abstract",
    ),
)  # fmt: skip

# Dev F1 on CoNLL-2003 with BERT base (Devlin et al. 2019, table 7). What the paper calls a weighted
# sum is taken for the plain sum: it names no weights. It has no value for our learned mix.
LAYERS = {
    "embeddings": 91.0,
    "last": 94.9,
    "second_to_last": 95.6,
    "sum_last_4": 95.9,
    "concat_last_4": 96.1,
    "sum_all": 95.5,
}
LAYERS_TASK = "conll2003", "entity_f1"


def published_layers(task: str, metric: str) -> dict[str, float]:
    """Return published development scores by choice of layers; empty for other tasks."""
    return LAYERS if (task, metric) == LAYERS_TASK else {}


def published(task: str) -> list[Published]:
    """Return the published scores for a task."""
    return [figure for figure in (*_glue_test(), *SINGLE) if figure.task == task]


def _glue_test() -> Iterator[Published]:
    for model, scores in GLUE_TEST_SCORES.items():
        for (task, metric), score in zip(GLUE_TEST, scores, strict=True):
            split = "test, without WNLI" if task == "glue" else "test"
            yield Published(task, metric, model, split, score, f"{DEVLIN}, table 1")
