"""The whole configuration as typed dataclasses, torch-free; only the CLI sees Hydra's own form.

`Config` is what code below the CLI takes. Each field says beside itself whether it is a result key
(enters fingerprints) or an execution key; see `data_prep.fields`.
"""

import re
from dataclasses import dataclass
from typing import Any

from data_prep.config import CorpusConfig, ExamplesConfig, TokenizerConfig
from data_prep.errors import UsageError
from data_prep.fields import execution, result
from data_prep.vectors.config import VectorsConfig
from pipeline.models.config import ModelConfig
from pipeline.tasks.config import FinetuneConfig, LayersConfig, TaskConfig
from pipeline.tracking.config import TrackingConfig
from pipeline.training.config import (
    InitConfig,
    OptimConfig,
    PhaseConfig,
    PretrainConfig,
    TrainerConfig,
)

RANDOM = "random"  # the encoder that was never trained
VECTORS = "vectors"  # word vectors trained on this experiment's corpus
TFIDF = "tfidf"  # counts of words under a linear model
MAJORITY = "majority"  # the commonest answer, whatever the text
# Floors under every encoder, by the kinds of task they can do.
FLOORS = {TFIDF: ("classify", "regress"), MAJORITY: ("classify", "regress", "tag")}


@dataclass
class PathsConfig:
    """Where outputs live."""

    store: str = execution("${oc.env:SESAME_STORE,store}", "the folder of all outputs")


@dataclass
class ShareConfig:
    """What may leave the data folders."""

    text: bool | None = result(
        None,
        "allow strings of the corpus and tasks on pages; when not set, only where every text of "
        "the configuration is the demo's own",
    )


@dataclass
class InstanceConfig:
    """One named use of a stage in an experiment, or a sweep of them."""

    stage: str = result("finetune", "the stage")
    set: list[str] = result([], "overrides of this instance, as on the command line")
    sweep: dict[str, Any] = result({}, "override to list of values; one instance a combination")


@dataclass
class ExportConfig:
    """The loadable folder."""

    checkpoint: str = result("last", "which checkpoint: last, best or a step; name@step sets it")
    license: str = result(
        "unknown", "the model's licence, as the Hub calls it: apache-2.0, cc-by-4.0, other, …",
        is_later=True,
    )  # fmt: skip
    language: str | None = result(
        None, "code of the corpus's language, such as sv, or multilingual; for the model card",
        is_later=True,
    )  # fmt: skip

    def check(self) -> None:
        """Refuse what the Hub would not understand."""
        if not re.fullmatch(r"[a-z0-9][a-z0-9.+-]*", self.license):
            raise UsageError(
                f"export.license={self.license}: must be an identifier of the Hub, such as "
                "apache-2.0, mit, cc-by-4.0, other or unknown"
            )
        if self.language and not re.fullmatch(r"[a-z]{2,3}|multilingual", self.language):
            raise UsageError(
                f"export.language={self.language}: must be a code of two or three letters, such "
                "as en or sv, or multilingual"
            )


@dataclass
class ReportConfig:
    """The closing page."""

    title: str = result("", "heading; the run's name when empty")


@dataclass
class Config:
    """Everything a command may be told."""

    name: str = execution("run", "names the run; references such as encoder= take it")
    seed: int = execution(0, "default of examples.seed and trainer.seed")
    stages: list[str] = execution([], "what `sesame run` does")
    instances: dict[str, InstanceConfig] = execution({}, "named uses of stages beyond one each")
    encoder: Any = execution(
        None,
        "what to export or fine-tune: a run, name@step, a fingerprint, a folder or file of "
        "vectors (./name where a run has that name), `random`, `vectors` (trained on the corpus), "
        "`tfidf`, `majority`, or a list of several side by side; this experiment's own pretraining "
        "when not set",
    )
    runs: Any = execution([], "runs a report compares; this experiment when empty")
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
    def encoders(self) -> list[str | None]:
        """What `encoder` names, one by one."""
        names: list[str | None] = self.encoder if isinstance(self.encoder, list) else [self.encoder]
        return names

    @property
    def phases(self) -> list[PhaseConfig]:
        """The phases of pretraining: those configured, or the one of `examples.max_seq_length`."""
        return list(self.pretrain.phases) or [PhaseConfig(self.examples.max_seq_length)]

    def check(self) -> None:
        """Refuse what two sections together make impossible."""
        if not self.encoders or any(isinstance(name, list | dict) for name in self.encoders):
            raise UsageError(f"encoder={self.encoder}: must be one encoder or a list of them")
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
                f"finetune.crf=true: task.kind={self.task.kind} has no tags in a row; leave it out"
            )
        if self.finetune.pairs == "apart" and self.task.kind == "span":
            raise UsageError(
                "finetune.pairs=apart: an answer is found by reading question and passage "
                "together; leave it out"
            )
