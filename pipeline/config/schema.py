"""The complete config as typed dataclasses, without torch.

All code below the command line takes a `Config`; only `compose` sees Hydra's untyped form. Each
field is declared as a result key (it enters fingerprints) or as an execution key; see
`data_prep.fields`.
"""

import re
from dataclasses import dataclass
from typing import Any

from data_prep.config import CorpusConfig, TokenizerConfig
from data_prep.errors import UsageError
from data_prep.examples.config import ExamplesConfig
from data_prep.fields import execution, result
from data_prep.vectors.config import VectorsConfig
from pipeline.models.config import ModelConfig
from pipeline.tasks.config import RANDOM as RANDOM
from pipeline.tasks.config import FinetuneConfig, LayersConfig, TaskConfig
from pipeline.tracking.config import TrackingConfig
from pipeline.training.config import (
    InitConfig,
    OptimConfig,
    PhaseConfig,
    PretrainConfig,
    TrainerConfig,
)

# Special values of `encoder=`; RANDOM is one too.
VECTORS = "vectors"  # word vectors trained on this experiment's corpus
TFIDF = "tfidf"  # baseline: a linear model over tf-idf weights
MAJORITY = "majority"  # baseline: the most frequent answer
# Baselines without an encoder, with the task kinds they support.
FLOORS = {
    TFIDF: ("classify", "regress"),
    MAJORITY: ("classify", "regress", "tag", "choice", "multilabel"),
}


def is_random(encoder: str | None) -> bool:
    """Return True for an untrained encoder: `random`, or `random:<run or folder>`."""
    return (encoder or "").partition(":")[0] == RANDOM


@dataclass
class PathsConfig:
    """Folders on disk."""

    store: str = execution(
        "${oc.env:SESAME_STORE,store}", "folder of all outputs", holds_environment=True
    )


@dataclass
class ShareConfig:
    """Permissions to show private data."""

    text: bool | None = result(
        None,
        "allow text of the corpus and tasks on pages; if not set, it is allowed only if all text "
        "of the config is the demo's own",
    )


@dataclass
class InstanceConfig:
    """One named instance of a stage in an experiment, or a sweep of instances."""

    stage: str = result("finetune", "stage to run")
    set: list[str] = result([], "overrides of this instance, as on the command line")
    sweep: dict[str, Any] = result({}, "key to list of values; one instance per combination")


@dataclass
class ExportConfig:
    """The exported folder."""

    checkpoint: str = result(
        "last",
        "checkpoint to export: last, best (lowest held-out loss) or a step; name@step sets it",
    )
    average: list[int] = result(
        [],
        "steps whose weights are averaged, instead of one checkpoint; all must be kept "
        "(trainer.keep_every)",
        is_later=True,
    )
    license: str = result(
        "unknown", "licence of the model, as an identifier of the Hub: apache-2.0, cc-by-4.0, …",
        is_later=True,
    )  # fmt: skip
    language: Any = result(
        None, "language code of the corpus, such as sv, a list such as [sv, fi], or multilingual; "
        "for the model card",
        is_later=True,
    )  # fmt: skip

    sentence_vectors: str | None = result(
        None, "also write the files of sentence-transformers, which pool tokens in this way (BERT)",
        choices=("mean", "first", "max"), is_later=True,
    )  # fmt: skip

    def check(self) -> None:
        """Raise `UsageError` for a licence or language that the Hub does not accept."""
        check_licence("export.license", self.license)
        if self.language is not None:
            check_language("export.language", self.language)


def check_licence(key: str, licence: str) -> None:
    """Raise `UsageError` for a licence that the Hub does not accept."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9.+-]*", licence):
        raise UsageError(
            f"{key}={licence}: must be an identifier of the Hub, such as apache-2.0, mit, "
            "cc-by-4.0, other or unknown"
        )


def check_language(key: str, language: Any) -> None:
    """Raise `UsageError` for a language code, or a list of them, that the Hub does not accept."""
    for code in language if isinstance(language, list) else [language]:
        if not isinstance(code, str) or not re.fullmatch(r"[a-z]{2,3}|multilingual", code):
            raise UsageError(
                f"{key}={language}: must be a code of two or three letters, such as en or sv, a "
                "list of them such as [sv, fi], or multilingual"
            )


@dataclass
class ReportConfig:
    """The report page."""

    title: str = result("", "heading of the page; the run's name if empty")


@dataclass
class Config:
    """The complete config of a command."""

    name: str = execution("run", "name of the run; encoder= and other references use it")
    seed: int = execution(0, "default of examples.seed and trainer.seed")
    stages: list[str] = execution([], "stages that `sesame run` makes")
    instances: dict[str, InstanceConfig] = execution(
        {}, "named instances of stages, for stages that run more than once"
    )
    encoder: Any = execution(
        None,
        "encoder to export or fine-tune: a run, name@step, a fingerprint, a folder or file of "
        "vectors (./name if a run has that name), `random` or `random:<run>` (untrained weights; a "
        "run's model and tokenizer), `vectors` (trained on the corpus), `tfidf`, `majority`, or a "
        "list of several (fine-tuning concatenates their vectors); this "
        "experiment's own pretraining if not set",
        holds_environment=True,
    )
    keep: bool | None = execution(
        None,
        "keep fine-tuned models, for predict, evaluate and encoder=; of several seeds the one with "
        "the best development score; when not set, all are kept but those of random encoders and "
        "of sweeps (-m)",
    )
    verify: str = execution(
        "sampled",
        "compare files of the store above 64 MB with their manifest by sampled blocks, or in full; "
        "smaller files are always compared in full, each version of a file once",
        choices=("sampled", "full"),
    )
    executor: str = execution(
        "pool",
        "who makes the work units of shard, tokenizer and examples: processes of this machine, or "
        "a Ray cluster whose nodes share the store",
        choices=("pool", "ray"),
    )
    ray_address: str = execution(
        "auto", "the Ray cluster: <host>:<port> of its head, or auto if this machine belongs to it"
    )
    runs: Any = execution([], "runs that a report compares; this experiment if empty")
    paths: PathsConfig = execution(PathsConfig(), "")
    corpus: CorpusConfig = execution(CorpusConfig(), "")
    tokenizer: TokenizerConfig = execution(TokenizerConfig(), "")
    vectors: VectorsConfig = execution(VectorsConfig(), "")
    examples: ExamplesConfig = execution(ExamplesConfig(), "")
    model: ModelConfig = execution(ModelConfig(), "")
    init: InitConfig = execution(InitConfig(), "")
    optim: OptimConfig = execution(OptimConfig(), "")
    trainer: TrainerConfig = execution(TrainerConfig(), "")
    pretrain: PretrainConfig = execution(PretrainConfig(), "")
    task: TaskConfig = execution(TaskConfig(), "")
    finetune: FinetuneConfig = execution(FinetuneConfig(), "")
    layers: LayersConfig = execution(LayersConfig(), "")
    export: ExportConfig = execution(ExportConfig(), "")
    report: ReportConfig = execution(ReportConfig(), "")
    tracking: TrackingConfig = execution(TrackingConfig(), "")
    share: ShareConfig = execution(ShareConfig(), "")

    @property
    def verifies_all(self) -> bool:
        """True if large files are compared in full."""
        return self.verify == "full"

    @property
    def encoders(self) -> list[str | None]:
        """The value of `encoder` as a list."""
        names: list[str | None] = self.encoder if isinstance(self.encoder, list) else [self.encoder]
        return names

    @property
    def phases(self) -> list[PhaseConfig]:
        """The phases of pretraining; without configured ones, one of `examples.max_seq_length`."""
        return list(self.pretrain.phases) or [PhaseConfig(self.examples.max_seq_length)]

    def check(self) -> None:
        """Raise `UsageError` for contradictions between sections."""
        if not self.encoders or not all(isinstance(name, str | None) for name in self.encoders):
            raise UsageError(
                f"encoder={self.encoder}: must be one encoder or a list of them, each a text; "
                "write a fingerprint of digits in quotes: encoder='\"1234\"'"
            )
        for floor in FLOORS.keys() & {name for name in self.encoders if name}:
            if len(self.encoders) > 1 or self.task.kind not in FLOORS[floor]:
                raise UsageError(
                    f"encoder={self.encoder}: {floor} stands alone, for task.kind "
                    f"{' or '.join(FLOORS[floor])}; this task's kind is {self.task.kind}"
                )
        lengths = [phase.max_seq_length for phase in self.pretrain.phases]
        longest = max([self.examples.max_seq_length, *lengths])
        most = getattr(self.model, "max_positions", longest)
        if longest > most:
            raise UsageError(
                f"examples.max_seq_length={longest}: more than model.max_positions={most}; "
                "shorten the rows or give the model more positions"
            )
        if self.finetune.crf and self.task.kind != "tag":
            raise UsageError(
                f"finetune.crf=true: needs task.kind=tag, not {self.task.kind}; leave it out"
            )
        if self.finetune.crf and self.task.class_weights is not None:
            raise UsageError(
                "task.class_weights: a CRF has one loss per sentence, not per word; set "
                "finetune.crf=false"
            )
        self.task.refuse_parts(self.finetune)
        if self.finetune.pair_encoding == "separate" and self.task.kind == "span":
            raise UsageError(
                "finetune.pair_encoding=separate: an answer is found by reading question and "
                "passage together; leave it out"
            )
