"""Published figures of conf/ against the papers' tables, which are written here a second time."""

from pathlib import Path

import pytest

from pipeline.report.published import LAYERS, Published, published

CONF = Path(__file__).parents[3] / "conf" / "task"
# Devlin et al. 2019, table 1: GLUE test results. MNLI-m, MNLI-mm, QQP, QNLI, SST-2, CoLA, STS-B,
# MRPC, RTE, average. "F1 scores are reported for QQP and MRPC, Spearman correlations are reported
# for STS-B, and accuracy scores are reported for the other tasks"; CoLA's is Matthews correlation.
TABLE_1 = {
    "BiLSTM over ELMo, attention": "76.4 76.1 64.8 79.8 90.4 36.0 73.3 84.9 56.8 71.0",
    "BERT base": "84.6 83.4 71.2 90.5 93.5 52.1 85.8 88.9 66.4 79.6",
    "BERT large": "86.7 85.9 72.1 92.7 94.9 60.5 86.5 89.3 70.1 82.1",
}
COLUMNS_1 = (
    ("mnli", "accuracy"), ("mnli", "accuracy_mismatched"), ("qqp", "f1"), ("qnli", "accuracy"),
    ("sst2", "accuracy"), ("cola", "matthews"), ("stsb", "spearman"), ("mrpc", "f1"),
    ("rte", "accuracy"), ("glue", "average"),
)  # fmt: skip
# (source, task, split, model): figures by metric.
TABLES = {
    # Table 2: SQuAD 1.1, single systems.
    ("Devlin et al. 2019, table 2", "squad", "dev", "BERT base"): {"exact_match": 80.8, "f1": 88.5},
    ("Devlin et al. 2019, table 2", "squad", "dev", "BERT large"): {
        "exact_match": 84.1, "f1": 90.9,
    },
    ("Devlin et al. 2019, table 2", "squad", "dev", "BiDAF over ELMo"): {"f1": 85.6},
    # Table 3: SQuAD 2.0.
    ("Devlin et al. 2019, table 3", "squad2", "dev", "BERT large"): {
        "exact_match": 78.7, "f1": 81.9,
    },
    ("Devlin et al. 2019, table 3", "squad2", "test", "BERT large"): {
        "exact_match": 80.0, "f1": 83.1,
    },
    # Table 4: SWAG.
    ("Devlin et al. 2019, table 4", "swag", "dev", "BERT base"): {"accuracy": 81.6},
    ("Devlin et al. 2019, table 4", "swag", "dev", "BERT large"): {"accuracy": 86.6},
    ("Devlin et al. 2019, table 4", "swag", "test", "BERT large"): {"accuracy": 86.3},
    ("Devlin et al. 2019, table 4", "swag", "dev", "ESIM over ELMo"): {"accuracy": 59.1},
    ("Devlin et al. 2019, table 4", "swag", "test", "ESIM over ELMo"): {"accuracy": 59.2},
    # Table 5: ablation over the pretraining tasks, row BERT base.
    ("Devlin et al. 2019, table 5", "mnli", "dev", "BERT base"): {"accuracy": 84.4},
    ("Devlin et al. 2019, table 5", "qnli", "dev", "BERT base"): {"accuracy": 88.4},
    ("Devlin et al. 2019, table 5", "mrpc", "dev", "BERT base"): {"accuracy": 86.7},
    ("Devlin et al. 2019, table 5", "sst2", "dev", "BERT base"): {"accuracy": 92.7},
    # Table 6: ablation over the model's size, row 24 layers, 1024 wide, 16 heads.
    ("Devlin et al. 2019, table 6", "mnli", "dev", "BERT large"): {"accuracy": 86.6},
    ("Devlin et al. 2019, table 6", "mrpc", "dev", "BERT large"): {"accuracy": 87.8},
    ("Devlin et al. 2019, table 6", "sst2", "dev", "BERT large"): {"accuracy": 93.7},
    # Table 7: CoNLL-2003, fine-tuned.
    ("Devlin et al. 2019, table 7", "conll2003", "dev", "ELMo"): {"entity_f1": 95.7},
    ("Devlin et al. 2019, table 7", "conll2003", "dev", "BERT base"): {"entity_f1": 96.4},
    ("Devlin et al. 2019, table 7", "conll2003", "test", "BERT base"): {"entity_f1": 92.4},
    ("Devlin et al. 2019, table 7", "conll2003", "dev", "BERT large"): {"entity_f1": 96.6},
    ("Devlin et al. 2019, table 7", "conll2003", "test", "BERT large"): {"entity_f1": 92.8},
    # Peters et al. 2018, table 1: test sets; NER 92.22 ± 0.10.
    ("Peters et al. 2018, table 1", "squad", "test", "BiDAF over ELMo"): {"f1": 85.8},
    ("Peters et al. 2018, table 1", "conll2003", "test", "ELMo"): {"entity_f1": 92.22},
    ("Aguilar et al. 2017, abstract", "wnut17", "test", "UH-RiTUAL, first of the shared task"): {
        "entity_f1": 41.86,
    },
}  # fmt: skip


def every_figure() -> list[Published]:
    return [figure for path in CONF.glob("*.yaml") for figure in published(path.stem)]


def test_every_figure_is_that_of_its_paper() -> None:
    """None is missing, none is made up, none belongs to a task that we do not have."""
    expected = {
        (source, task, split, model, metric): score
        for (source, task, split, model), scores in TABLES.items()
        for metric, score in scores.items()
    }
    for model, row in TABLE_1.items():
        for (task, metric), cell in zip(COLUMNS_1, row.split(), strict=True):
            split = "test, without WNLI" if task == "glue" else "test"
            expected["Devlin et al. 2019, table 1", task, split, model, metric] = float(cell)
    found = {
        (each.source, each.task, each.split, each.model, each.metric): each.score
        for each in every_figure()
    }
    assert found == expected


def test_deviations_are_those_of_the_papers() -> None:
    deviations = {each.model: each.deviation for each in every_figure() if each.deviation}
    assert deviations == {"ELMo": 0.10}


def test_the_layer_table_has_the_figures_of_devlin_et_al_table_7() -> None:
    """Rows "Feature-based approach (BERT base)", column Dev F1."""
    assert LAYERS == {
        "embeddings": 91.0,  # Embeddings
        "second_to_last": 95.6,  # Second-to-Last Hidden
        "last": 94.9,  # Last Hidden
        "sum_last_4": 95.9,  # Weighted Sum Last Four Hidden
        "concat_last_4": 96.1,  # Concat Last Four Hidden
        "sum_all": 95.5,  # Weighted Sum All 12 Layers
    }


@pytest.mark.parametrize(("score", "printed"), [(92.4, "92.4"), (41.86, "41.86"), (91.0, "91.0")])
def test_figures_are_printed_with_the_digits_of_the_paper(score: float, printed: str) -> None:
    assert Published("t", "f1", "m", "dev", score, "s").printed == printed
