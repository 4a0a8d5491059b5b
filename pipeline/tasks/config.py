"""Configuration of downstream tasks (`task`). Fine-tuning has `finetune_config`."""

import math
import os
from dataclasses import dataclass, fields, replace
from typing import Any

from data_prep.errors import UsageError
from data_prep.fields import check, check_types, execution, result
from data_prep.text.words import ADDRESSES, PUNCTUATION
from pipeline.models.classes import SENTENCES
from pipeline.tasks.finetune_config import LAYERS, FinetuneConfig, LayersConfig

__all__ = [
    "AVERAGE",
    "BALANCED",
    "LAYERS",
    "WEIGHTED",
    "FinetuneConfig",
    "LayersConfig",
    "TaskConfig",
]

METRICS = {
    "classify": ("accuracy", "f1", "matthews"),
    "regress": ("pearson", "spearman"),
    "tag": ("entity_f1", "accuracy"),
    "span": ("f1", "exact_match"),
    "choice": ("accuracy",),
    "multilabel": ("micro_f1", "macro_f1", "subset_accuracy"),
}
READERS_BY_KIND = {
    "classify": ("table", "wiki_links", "wic"),
    "regress": ("table",),
    "tag": ("conll", "conllu", "conll2012", "spans", "brat", "wiki_links"),
    "span": ("squad",),
    "choice": ("table", "commonsense_qa"),
    "multilabel": ("table",),
}
# Readers without a group field, and what they group by.
GROUPING = {"wiki_links": "page", "brat": "file", "conll2012": "document", "wic": "pair"}
OF_TEXTS = ("spans", "brat")  # readers that split texts into words by task.word_split
WITH_DOCUMENTS = ("conll", "conll2012", "brat")  # readers that task.context=document needs
TABLES = ("table", "commonsense_qa")  # readers of named columns, and keys that only they obey
OF_TABLES = ("columns", "aliases", "where", "scored_where", "label_aliases")
LIMITS = ("train_examples", "train_fraction", "dev_examples", "test_examples")
BALANCED = "balanced"  # task.class_weights
WEIGHTED = ("classify", "tag")  # kinds that may have class weights
RANDOM = "random"  # encoder=random: weights that were never trained
AVERAGE = "average"  # the metric of a suite: the mean of its members' scores


@dataclass
class TaskConfig:
    """A downstream task: its files, their format and its metric."""

    name: str | None = result(None, "the task's name")
    kind: str = result("classify", "what the head predicts", choices=tuple(METRICS))
    reader: str = result(
        "table",
        "format of the files: table = .tsv, .csv or .jsonl; conll = one word and its tag per line; "
        "conllu = parts of speech in CoNLL-U; conll2012 = OntoNotes' *_gold_conll files; "
        "wiki_links = links of a MediaWiki dump; squad = SQuAD's JSON; commonsense_qa = JSON lines "
        "with `question: {stem, choices: [{label, text}]}` and `answerKey`; wic = Words in "
        "Context's .data. and .gold. files; spans = JSON lines with text and "
        "`spans: [{start, end, label}]`; brat = .txt with .ann files, or folders of them",
        choices=tuple(dict.fromkeys(name for names in READERS_BY_KIND.values() for name in names)),
    )
    data_dir: str | None = execution(None, "folder of the task's files", holds_environment=True)
    train: str | None = result(None, "training file below data_dir")
    dev: str | None = result(
        None, "development file; when not set, a part of train is split off by hash"
    )
    test: str | None = result(
        None,
        "test file; when not set, the development file is scored; when that is not set either, a "
        "part of train",
    )
    further_tests: dict[str, str] = result(
        {}, "further files to score: suffix of their score names to file; missing files are skipped"
    )
    unlabelled: dict[str, str] = result(
        {}, "files without labels to predict: name of the output to file; missing files are skipped"
    )
    columns: list[str] = result([], "names of a table's columns, for files without a header")
    aliases: dict[str, str] = result({}, "columns to rename: name in the file to name used here")
    text_a: str = result("sentence", "column of the first or only sentence")
    text_b: str | None = result(
        None, "column of the second sentence; multiple choice: of the beginning of all choices"
    )
    choices: list[str] = result(
        [], "columns of the choices, or one column with a list of them (task.kind=choice)",
        is_later=True,
    )  # fmt: skip
    label: str = result("label", "column of the label")
    labels: list[str] = result(
        [],
        "all labels; when empty, the labels of the training file; multiple choice: names of the "
        "first, second, … choice; when empty, their numbers from 0",
    )
    label_aliases: dict[str, str] = result(
        {}, "labels to rename: name in the file to name used here (table)", is_later=True
    )
    label_separator: str = result(
        ",", "character between the labels of an example (task.kind=multilabel); JSON may have a "
        "list instead", is_later=True,
    )  # fmt: skip
    tune_threshold: bool = result(
        False, "choose the probability above which an example has a label by task.metric on the "
        "development examples; else it is 0.5 (task.kind=multilabel)", is_later=True,
    )  # fmt: skip
    class_weights: Any = result(
        None, "weights of the labels in the loss: balanced = inversely to their frequency, or a "
        "mapping from label to weight (task.kind=classify or tag)", is_later=True,
    )  # fmt: skip
    group_field: str | None = result(
        None, "column or field that groups examples, such as a patient: all examples of a group go "
        "to the same split (table; squad; conll: a comment `# field = value`, or document)",
        is_later=True,
    )  # fmt: skip
    where: dict[str, str] = result(
        {}, "keep only rows whose columns have these values; files without labels keep all"
    )
    scored_where: dict[str, str] = result(
        {}, "the same for development and test files only, such as the language of a task whose "
        "training file has one language", is_later=True,
    )  # fmt: skip
    context: str = result(
        "sentence", "what the encoder sees of a sentence to tag: the sentence alone, or as much of "
        "its document on both sides as fits (conll, where documents begin at -DOCSTART-; "
        "conll2012; brat)",
        choices=("sentence", "document"), is_later=True,
    )  # fmt: skip
    word_split: str = result(
        ADDRESSES, "where texts are split into the words that are tagged: punctuation = at white "
        "space and punctuation; addresses = the same, but @names, #tags, web and mail addresses "
        "are whole (spans, brat)", choices=(PUNCTUATION, ADDRESSES), is_later=True,
    )  # fmt: skip
    faulty: str = result(
        "refuse",
        "on a row with missing columns, an empty sentence or an answer that is not in its text: "
        "stop with an error, or drop and count the row",
        choices=("refuse", "drop"),
    )
    unanswerable: bool = result(False, "questions may have no answer, as in SQuAD 2.0")
    stride: int = result(
        128, "tokens from the start of one window to the start of the next (span)", at_least=1
    )
    max_question: int = result(
        64, "maximum tokens of a question; longer questions are truncated", at_least=1
    )
    max_answer: int = result(30, "maximum words of an answer", at_least=1)
    train_examples: int | None = result(
        None, "maximum training examples; the sample is drawn with finetune.seed", at_least=1
    )
    train_fraction: float = result(
        1.0, "fraction of the training examples to use; the sample is drawn with finetune.seed",
        at_least=0.0, at_most=1.0,
    )  # fmt: skip
    dev_examples: int | None = result(None, "maximum development examples", at_least=1)
    test_examples: int | None = result(None, "maximum test examples", at_least=1)
    test_documents: list[str] = result([], "ids of the pages of the test set (wiki_links)")
    metric: str = result(
        "accuracy",
        "the score used for early stopping, for choosing the best epoch and in tables",
        choices=(*dict.fromkeys(name for names in METRICS.values() for name in names), AVERAGE),
    )
    averaged: list[str] = result(
        [], "scores whose mean enters a suite's average; when empty, task.metric"
    )
    finetune: dict[str, Any] = execution(
        {},
        "settings of a suite's member that replace those of finetune, such as {epochs: 10}; "
        "they enter the fingerprint of this member only",
    )
    members: dict[str, "TaskConfig"] = execution(
        {}, "tasks of a suite, by name; tasks without data are skipped"
    )

    @property
    def scored_split(self) -> str:
        """The split that is scored: test, dev, or a part of train; see `test`.

        If it is dev, the epoch is chosen on the same examples.
        """
        if self.test is not None or self.test_documents:
            return "test"
        return "part of train" if self.dev is None else "dev"

    @property
    def text_rule(self) -> str:
        """The rule that splits a text to tag into words: that of training, else punctuation."""
        return self.word_split if self.reader in OF_TEXTS else PUNCTUATION

    @property
    def has_pairs(self) -> bool:
        """True if an input has two texts that an encoder may read together or separately."""
        return self.kind == "choice" or (self.text_b is not None and self.kind in SENTENCES)

    def member_tasks(self) -> dict[str, "TaskConfig"]:
        """Return a suite's tasks, with folders below the suite's and the suite's LIMITS applied."""
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

    def own_finetuning(self, shared: FinetuneConfig) -> FinetuneConfig:
        """Return the settings of a suite's member: the suite's, with its own in their place."""
        own = replace(shared, **self.finetune)
        own.check()
        self.refuse_parts(own)
        return own

    def refuse_parts(self, tuning: FinetuneConfig) -> None:
        """Raise a UsageError if pairs are to be encoded separately and in micro-batches."""
        if tuning.pair_encoding == "separate" and self.has_pairs:
            tuning.refuse_parts()

    def check(self) -> None:
        """Raise a UsageError for keys that contradict each other."""
        if self.finetune:
            raise UsageError("task.finetune: only members of a suite have it; set finetune.* keys")
        self._check_task()

    def _check_task(self) -> None:
        if bool(self.members) != (self.metric == AVERAGE):
            raise UsageError(
                f"task.metric={self.metric}: a suite (task.members) needs task.metric={AVERAGE}; "
                "a single task must use another metric"
            )
        if self.members:
            if self.group_field is not None:
                raise UsageError(
                    f"task.group_field={self.group_field}: a suite's tasks have their own; set "
                    "task.members.<name>.group_field"
                )
            self._check_members()
            return
        self._check_form()
        self._check_splits()
        self._check_keys_of_kinds()
        self._check_class_weights()

    def _check_form(self) -> None:
        """Check that metric, reader and labels fit the kind."""
        if self.metric not in METRICS[self.kind]:
            raise UsageError(
                f"task.metric={self.metric}: task.kind={self.kind} is scored by "
                f"{', '.join(METRICS[self.kind])}"
            )
        if self.reader not in READERS_BY_KIND[self.kind]:
            raise UsageError(
                f"task.reader={self.reader}: task.kind={self.kind} is read by "
                f"{', '.join(READERS_BY_KIND[self.kind])}"
            )
        if self.reader == "conllu" and self.metric == "entity_f1":
            raise UsageError(
                "task.metric=entity_f1: parts of speech (task.reader=conllu) are no entities; set "
                "task.metric=accuracy"
            )
        is_tag = [label == "O" or label.startswith(("B-", "I-")) for label in self.labels]
        if self.kind == "tag" and self.reader != "conllu" and any(is_tag):
            raise UsageError(
                f"task.labels=[{','.join(self.labels)}]: name types such as PER, not tags such as "
                "O and B-PER"
            )

    def _check_splits(self) -> None:
        """Check the keys that say which examples belong to which split."""
        if self.group_field is not None and self.reader in GROUPING:
            raise UsageError(
                f"task.group_field={self.group_field}: task.reader={self.reader} groups its "
                f"examples by {GROUPING[self.reader]} already; unset task.group_field"
            )
        if self.test_documents and self.test is not None:
            raise UsageError(
                f"task.test_documents and task.test={self.test}: two test sets contradict each "
                "other; set one of them"
            )
        if self.further_tests.keys() & self.unlabelled.keys():
            raise UsageError(
                "task.further_tests and task.unlabelled: a name may stand in one of them only"
            )
        official = METRICS[self.kind]
        known = {
            *official,
            *(f"{metric}_{name}" for metric in official for name in self.further_tests),
        }
        for name in self.averaged:
            if name not in known:
                raise UsageError(f"task.averaged: no score {name}; use {', '.join(sorted(known))}")

    def _check_keys_of_kinds(self) -> None:
        """Check the keys that only some kinds or readers obey."""
        for key in OF_TABLES:
            if getattr(self, key) and self.reader not in TABLES:
                raise UsageError(
                    f"task.{key}: task.reader={self.reader} has no columns; unset task.{key}"
                )
        if self.word_split != ADDRESSES and self.reader not in OF_TEXTS:
            raise UsageError(
                f"task.word_split={self.word_split}: only task.reader={' and '.join(OF_TEXTS)} "
                "split texts into words; leave it out"
            )
        if bool(self.choices) != (self.kind == "choice"):
            raise UsageError(
                f"task.choices=[{','.join(self.choices)}]: task.kind=choice needs columns of "
                "choices, and no other kind has any"
            )
        if self.context == "document" and self.reader not in WITH_DOCUMENTS:
            raise UsageError(
                f"task.context=document: needs task.reader={', '.join(WITH_DOCUMENTS)}, not "
                f"{self.reader}; set task.context=sentence"
            )
        if self.tune_threshold and self.kind != "multilabel":
            raise UsageError(
                f"task.tune_threshold=true: only task.kind=multilabel has one, not {self.kind}"
            )
        if not self.label_separator:
            raise UsageError(
                "task.label_separator: is empty; give the character between the labels of an "
                "example"
            )
        if self.unanswerable and self.kind != "span":
            raise UsageError(
                f"task.unanswerable=true: only task.kind=span has questions, not {self.kind}"
            )

    def _check_class_weights(self) -> None:
        given = self.class_weights
        if given is None:
            return
        if self.kind not in WEIGHTED:
            raise UsageError(
                f"task.class_weights: only task.kind={' and '.join(WEIGHTED)} have them, not "
                f"{self.kind}"
            )
        is_mapping = isinstance(given, dict) and all(
            isinstance(value, int | float) and 0 < value < math.inf for value in given.values()
        )
        if given != BALANCED and not is_mapping:
            raise UsageError(
                f"task.class_weights: must be {BALANCED}, or a mapping from label to a weight "
                "above 0"
            )

    def _check_members(self) -> None:
        known = {item.name for item in fields(self)}
        for name, member in self.members.items():
            # Hydra accepts any key below a dictionary, so misspelt keys must be found here.
            for key in vars(member).keys() - known:
                raise UsageError(f"task.members.{name}.{key}: a task has no such key")
            check(member, f"task.members.{name}.")
            _check_own_finetuning(member.finetune, f"task.members.{name}.finetune.")
            member._check_task()


def _check_own_finetuning(settings: dict[str, Any], prefix: str) -> None:
    for key in settings:
        if key == "seed" or key not in FinetuneConfig.__dataclass_fields__:
            raise UsageError(f"{prefix}{key}: a member of a suite has no such setting of its own")
    own = FinetuneConfig(**settings)
    check_types(own, prefix)
    check(own, prefix)
