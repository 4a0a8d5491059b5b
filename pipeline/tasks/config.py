"""Configuration of fine-tuning; the YAML group task and the node finetune extend these."""

import os
from dataclasses import dataclass, fields, replace

from data_prep.errors import UsageError
from data_prep.fields import check, execution, result

METRICS = {
    "classify": ("accuracy", "f1", "matthews"),
    "regress": ("pearson", "spearman"),
    "tag": ("entity_f1", "accuracy"),
    "span": ("f1", "exact_match"),
}
READERS = {
    "classify": ("table", "wiki_links"),
    "regress": ("table",),
    "tag": ("conll", "wiki_links"),
    "span": ("squad",),
}
LAYERS = (
    "embeddings", "last", "second_to_last", "sum_last_4", "concat_last_4", "sum_all", "mix",
)  # fmt: skip
LIMITS = ("train_examples", "train_fraction", "dev_examples", "test_examples")
AVERAGE = "average"  # what a suite is scored by


@dataclass
class TaskConfig:
    """A downstream task: where its examples are, what they look like, how it is scored."""

    name: str | None = result(None, "the task's name")
    kind: str = result("classify", "what the head predicts", choices=tuple(METRICS))
    reader: str = result(
        "table",
        "form of the files: .tsv, .csv or .jsonl tables; words and tags in columns; links of a "
        "MediaWiki dump; SQuAD's JSON",
        choices=tuple(dict.fromkeys(name for names in READERS.values() for name in names)),
    )
    data_dir: str | None = execution(None, "folder of the task's files")
    train: str | None = result(None, "training file below data_dir")
    dev: str | None = result(None, "development file; cut from train by hash when not set")
    test: str | None = result(
        None, "test file; when not set the development file is scored, or else a part of train"
    )
    also: dict[str, str] = result(
        {}, "further files to score, by the name that tells their scores apart; left out if missing"
    )
    unlabelled: dict[str, str] = result(
        {}, "files without labels to predict, by the name their answers get; left out if missing"
    )
    columns: list[str] = result([], "names of a table's columns where the file has no header")
    aliases: dict[str, str] = result({}, "columns that some file names differently: theirs to ours")
    text_a: str = result("sentence", "column of the (first) sentence")
    text_b: str | None = result(None, "column of the second sentence")
    label: str = result("label", "column of the label")
    labels: list[str] = result([], "the labels there are; those of the training file when empty")
    group_field: str | None = result(
        None, "column or field whose examples belong together, such as a patient: no part of the "
        "data has examples of another's group (table; squad; conll: a comment `# field = value`, "
        "or document)", is_later=True,
    )  # fmt: skip
    where: dict[str, str] = result({}, "keep only rows whose columns have these values")
    faulty: str = result(
        "refuse",
        "rows with missing columns or an empty sentence, answers that are not in their text: "
        "stop, or drop and count them",
        choices=("refuse", "drop"),
    )
    unanswerable: bool = result(False, "questions may have no answer, as in SQuAD 2.0")
    stride: int = result(
        128, "pieces from one window's start to the next in texts longer than a window", at_least=1
    )
    max_question: int = result(64, "pieces of a question; longer ones are cut", at_least=1)
    max_answer: int = result(30, "words of an answer at most", at_least=1)
    train_examples: int | None = result(
        None, "labelled examples to train on at most; a sample drawn by finetune.seed", at_least=1
    )
    train_fraction: float = result(
        1.0, "share of the training examples to use, drawn by finetune.seed",
        at_least=0.0, at_most=1.0,
    )  # fmt: skip
    dev_examples: int | None = result(None, "development examples at most", at_least=1)
    test_examples: int | None = result(None, "test examples at most", at_least=1)
    test_documents: list[str] = result([], "ids of the pages that make the test set (wiki_links)")
    metric: str = result(
        "accuracy",
        "the score that early stopping and tables use",
        choices=(*dict.fromkeys(name for names in METRICS.values() for name in names), AVERAGE),
    )
    averaged: list[str] = result(
        [], "scores whose mean stands for the task in a suite's average; task.metric when empty"
    )
    members: dict[str, "TaskConfig"] = execution(
        {}, "tasks that this one, a suite, stands for; those without data are left out"
    )

    def member_tasks(self) -> dict[str, "TaskConfig"]:
        """The tasks of a suite, their folders below its own, with its limits where it has any."""
        default = TaskConfig()
        limits = {
            name: getattr(self, name)
            for name in LIMITS
            if getattr(self, name) != getattr(default, name)
        }
        folder = self.data_dir or ""
        return {
            name: replace(member, data_dir=os.path.join(folder, member.data_dir or ""), **limits)
            for name, member in self.members.items()
        }

    def check(self) -> None:
        """Refuse combinations that contradict each other."""
        if bool(self.members) != (self.metric == AVERAGE):
            raise UsageError(
                f"task.metric={self.metric}: task.members are scored by their {AVERAGE}, "
                "and nothing else is"
            )
        if self.members:
            if self.group_field is not None:
                raise UsageError(
                    f"task.group_field={self.group_field}: a suite's tasks have their own; set "
                    "task.members.<name>.group_field"
                )
            self._check_members()
            return
        if self.metric not in METRICS[self.kind]:
            raise UsageError(
                f"task.metric={self.metric}: task.kind={self.kind} is scored by "
                f"{', '.join(METRICS[self.kind])}"
            )
        if self.reader not in READERS[self.kind]:
            raise UsageError(
                f"task.reader={self.reader}: task.kind={self.kind} is read by "
                f"{', '.join(READERS[self.kind])}"
            )
        if self.group_field is not None and self.reader == "wiki_links":
            raise UsageError(
                f"task.group_field={self.group_field}: task.reader=wiki_links groups its examples "
                "by page already; unset task.group_field"
            )
        if self.test_documents and self.test is not None:
            raise UsageError(
                f"task.test_documents and task.test={self.test}: two test sets contradict each "
                "other; set one of them"
            )
        if self.unanswerable and self.kind != "span":
            raise UsageError(
                f"task.unanswerable=true: only task.kind=span has questions, not {self.kind}"
            )
        if self.also.keys() & self.unlabelled.keys():
            raise UsageError("task.also and task.unlabelled: a name may stand in one of them only")
        official = METRICS[self.kind]
        known = {*official, *(f"{metric}_{name}" for metric in official for name in self.also)}
        for name in self.averaged:
            if name not in known:
                raise UsageError(f"task.averaged: no score {name}; use {', '.join(sorted(known))}")

    def _check_members(self) -> None:
        known = {item.name for item in fields(self)}
        for name, member in self.members.items():
            # A dictionary takes any key from the command line, so that a typing error looks known.
            for key in vars(member).keys() - known:
                raise UsageError(f"task.members.{name}.{key}: there is no such key of a task")
            check(member, f"task.members.{name}.")
            member.check()


@dataclass
class FinetuneConfig:
    """How an encoder is fitted to a task."""

    lr: float = result(5e-5, "peak learning rate", at_least=0.0)
    layer_decay: float = result(
        1.0, "learning rate of each encoder layer over that of the layer above it",
        at_least=0.0, at_most=1.0,
    )  # fmt: skip
    batch_size: int = result(32, "examples in a step", at_least=1)
    epochs: int = result(3, "passes over the training examples", at_least=1)
    seed: int = result(0, "of the head's weights, the order and the sample of labels", at_least=0)
    mode: str = result(
        "full", "train the encoder too, or only the head", choices=("full", "frozen")
    )
    layers: str = result(
        "last",
        "which hidden states the head sees",
        choices=LAYERS,
    )
    pooling: str = result(
        "mean", "how a sentence becomes one vector", choices=("mean", "first", "max")
    )
    pairs: str = result(
        "together",
        "how an encoder that can read both sentences of a pair together does, or each on its own; "
        "the others' are always apart",
        choices=("together", "apart"), is_later=True,
    )  # fmt: skip
    head: str = result(
        "linear",
        "what stands on the encoder: a linear layer alone, or over two layers of BiLSTM or BiGRU",
        choices=("linear", "bilstm", "bigru"),
    )
    crf: bool = result(False, "judge the tags of a sentence together, by a CRF (task.kind=tag)")
    dropout: float = result(0.1, "before the head", at_least=0.0, at_most=0.9)
    warmup: float = result(0.1, "share of steps that warm up", at_least=0.0, at_most=1.0)
    weight_decay: float = result(0.01, "of weights; never of biases and norms", at_least=0.0)
    clip: float = result(1.0, "largest gradient norm", at_least=0.0)
    max_seq_length: int = result(128, "pieces of an input; longer ones are cut", at_least=8)
    patience: int | None = result(
        None, "stop after this many epochs without a better score, once there is any", at_least=1
    )
    keep_model: bool = result(
        False, "write the best epoch's weights, the head's and the trained encoder's"
    )
    accelerator: str = execution("auto", "where to compute", choices=("auto", "cpu", "cuda", "mps"))

    def check(self) -> None:
        """Refuse combinations that contradict each other."""
        if self.patience is not None and self.patience > self.epochs:
            raise UsageError(
                f"finetune.patience={self.patience}: larger than finetune.epochs={self.epochs}"
            )


@dataclass
class LayersConfig:
    """The table of layer choices: a head for each choice and seed on a frozen encoder."""

    seeds: int = result(3, "heads trained for each choice", at_least=1)
    lr: float = result(1e-3, "peak learning rate of the heads", at_least=0.0)
    epochs: int = result(10, "passes over the training examples", at_least=1)
    patience: int | None = result(
        2, "stop after this many epochs without a better score, once there is any", at_least=1
    )
