"""Config sections of pretraining: init, optim, trainer and pretrain."""

from dataclasses import dataclass
from typing import Any

from omegaconf import II

from data_prep.errors import UsageError
from data_prep.fields import execution, result
from pipeline.data.cursor import BatchSchedule

# Gradient elements per ZeRO exchange: two fp32 buffers of 400 MB. DeepSpeed's default of 5e8
# elements takes 4 GB.
ZERO_BUCKET = 100_000_000

PARTITIONABLE = ("adamw", "adagrad")  # optimizers that work element by element


@dataclass
class InitConfig:
    """The model or vectors that pretraining starts from."""

    source: str | None = execution(
        None,
        "model to start from: a run, name@step, fingerprint, Hugging Face BERT folder or AllenNLP "
        "pair; random weights if not set",
        holds_environment=True,
    )
    vectors: bool = execution(
        False,
        "start token embeddings from word vectors (stage vectors), trained on the same text and as "
        "wide as the model",
    )
    needed: bool = execution(False, "set by recipes that require init.source")

    def check(self) -> None:
        """Refuse `vectors` together with `source`, and a missing `source` where one is needed."""
        if self.vectors and self.source is not None:
            raise UsageError("init.vectors=true: init.source brings its embeddings; leave one out")
        if self.needed and self.source is None:
            raise UsageError(
                "init.source: this recipe goes on from a model; add init.source=<run or folder>"
            )


@dataclass
class OptimConfig:
    """The optimizer and its learning-rate schedule."""

    kind: str = result(
        "adamw",
        "AdamW (BERT), Adagrad (ELMo, as published), LAMB, StableAdamW, Muon, or one's own class "
        "(own); ZeRO supports the first two",
        choices=("adamw", "adagrad", "lamb", "stable_adamw", "muon", "own"),
    )
    lr: float = result(1e-4, "peak learning rate", at_least=0.0)
    beta1: float = result(0.9, "decay of the first moment", at_least=0.0, at_most=1.0)
    beta2: float = result(0.999, "decay of the second moment", at_least=0.0, at_most=1.0)
    eps: float = result(1e-6, "added to the root of the second moment", at_least=0.0)
    initial_accumulator: float = result(
        1.0, "initial value of Adagrad's sums of squared gradients", at_least=0.0
    )
    momentum: float = result(
        0.95,
        "muon: decay of the momentum of hidden matrices",
        at_least=0.0,
        at_most=1.0,
        is_later=True,
    )
    path: str | None = result(
        None,
        "own: the optimizer's class by dotted path; it is called with the parameter groups, "
        "optim.lr and optim.options",
        is_later=True,
    )
    options: dict[str, Any] = result({}, "own: further arguments of the class", is_later=True)
    weight_decay: float = result(
        0.01, "weight decay of matrices; biases and norms have none", at_least=0.0
    )
    clip: float = result(
        1.0,
        "largest gradient norm; larger gradients are scaled down; 0 does not clip",
        at_least=0.0,
    )
    schedule: str = result(
        "linear",
        "learning rate after warm-up: linear or cosine decay to zero, constant, or constant with a "
        "linear decay at the end (wsd)",
        choices=("linear", "cosine", "constant", "wsd"),
    )
    warmup: float = result(
        0.01, "share of the budget with a rising learning rate", at_least=0.0, at_most=1.0
    )
    start: float = result(
        0.0,
        "learning rate at the first step, as a share of the peak; warm-up rises from it",
        at_least=0.0,
        at_most=1.0,
        is_later=True,
    )
    decay: float = result(
        0.1, "wsd: share of the budget, at the end, that decays", at_least=0.0, at_most=1.0
    )

    def check(self) -> None:
        """Raise `UsageError` for one's own optimizer without its class, or the reverse."""
        if (self.kind == "own") != (self.path is not None):
            raise UsageError(
                f"optim.kind={self.kind} optim.path={self.path}: set optim.kind=own together with "
                "the dotted path of a class in optim.path"
            )

    def updates_rows(self, strategy: str) -> bool:
        """Return True if rows without a gradient do not change, so that they can be left out."""
        return self.kind == "adagrad" and not self.weight_decay and not strategy.startswith("zero")

    def check_strategy(self, strategy: str) -> None:
        """Raise `UsageError` for an optimizer whose arithmetic `trainer.strategy` would change."""
        if strategy.startswith("zero") and self.kind not in PARTITIONABLE:
            raise UsageError(
                f"optim.kind={self.kind}: needs whole tensors, but trainer.strategy={strategy} "
                f"gives optimizers flat slices of them; choose trainer.strategy=ddp, or optim.kind="
                f"{' or '.join(PARTITIONABLE)}"
            )


@dataclass
class TrainerConfig:
    """The budget, the batch and the machines."""

    strategy: str = execution(
        "single",
        "how ranks divide the work: one rank, DistributedDataParallel, or DeepSpeed's ZeRO 1 to 3",
        choices=("single", "ddp", "zero1", "zero2", "zero3"),
    )
    accelerator: str = execution(
        "auto",
        "device type; auto takes cuda, then mps, then cpu",
        choices=("auto", "cpu", "cuda", "mps"),
    )
    devices: int = execution(1, "ranks per node", at_least=1)
    num_nodes: int = execution(1, "number of nodes", at_least=1)
    precision: str = result(
        "fp32", "precision of the forward and backward pass", choices=("fp32", "bf16-mixed")
    )
    global_batch_size: int = result(256, "rows per optimizer step, over all ranks", at_least=1)
    micro_batch_size: int | None = execution(
        None, "rows per forward pass on a rank; all rows of the rank if not set", at_least=1
    )
    max_steps: int | None = result(None, "budget in optimizer steps", at_least=1)
    max_tokens: int | None = result(None, "budget in tokens, padding not counted", at_least=1)
    max_hours: float | None = result(None, "budget in hours of training", at_least=0.0)
    ramp_steps: int = result(
        0, "steps over which the batch grows from a quarter to its full size", at_least=0
    )
    shuffle_window: int = result(
        32, "consecutive chunks of an epoch whose rows are shuffled together", at_least=1
    )
    seed: int = result(II("seed"), "seed of initial weights, dropout and the order of rows")
    checkpoint_every: int = execution(1000, "steps between checkpoints", at_least=1)
    keep_checkpoints: int = execution(2, "number of newest checkpoints to keep", at_least=1)
    keep_every: int | None = execution(
        None, "also keep checkpoints at multiples of this step, for analysis", at_least=1
    )
    log_every: int = execution(10, "steps between lines of metrics.jsonl", at_least=1)
    eval_every: int = execution(1000, "steps between held-out evaluations", at_least=1)
    eval_rows: int = result(2048, "most held-out rows per evaluation", at_least=1)
    loader_workers: int | None = execution(
        None, "loader processes per rank; null: 2 on CUDA, otherwise 0", at_least=0
    )
    threads: int = execution(
        0, "CPU threads per rank; 0 divides the cores equally among ranks", at_least=0
    )
    profile: int | None = execution(
        None,
        "profile ten steps from this step on, on rank 0: a trace and a table in profile/",
        at_least=0,
    )
    compile: bool = execution(False, "compile the model with torch.compile")
    activation_checkpointing: bool = execution(
        False, "recompute activations in the backward pass to save memory"
    )
    timeout_minutes: float = execution(
        10.0,
        "end the run with a stack dump if a step or collective takes longer",
        at_least=0.0,
    )

    @property
    def world_size(self) -> int:
        """Number of ranks over all nodes."""
        return self.devices * self.num_nodes

    def check(self) -> None:
        """Raise `UsageError` for contradicting budgets and for batches that ranks cannot divide."""
        budgets = {
            key: getattr(self, key)
            for key in ("max_steps", "max_tokens", "max_hours")
            if getattr(self, key) is not None
        }
        if len(budgets) > 1:
            given = " and ".join(f"trainer.{key}={value}" for key, value in budgets.items())
            raise UsageError(f"{given}: two budgets contradict each other; set one to null")
        if self.strategy == "single" and self.world_size > 1:
            raise UsageError(
                f"trainer.strategy=single: cannot use {self.world_size} ranks "
                f"(trainer.devices={self.devices}, trainer.num_nodes={self.num_nodes}); "
                "choose ddp, zero1, zero2 or zero3"
            )
        if self.compile and self.strategy == "zero3":
            raise UsageError(
                "trainer.compile=true: compiled code does not gather the weights that zero3 "
                "partitions; choose zero2 or trainer.compile=false"
            )
        BatchSchedule(self.global_batch_size, self.ramp_steps).check(self.world_size)
        share = self.global_batch_size // self.world_size
        if self.micro_batch_size is not None and share % self.micro_batch_size:
            fits = [size for size in range(1, share + 1) if share % size == 0]
            raise UsageError(
                f"trainer.micro_batch_size={self.micro_batch_size}: must divide the {share} rows "
                f"each of {self.world_size} ranks takes of trainer.global_batch_size="
                f"{self.global_batch_size}; fits: {', '.join(map(str, fits))}"
            )


@dataclass
class PhaseConfig:
    """One phase of pretraining, on examples of one maximum length."""

    max_seq_length: int = result(128, "positions per row", at_least=8)
    share: float = result(1.0, "share of the budget", at_least=0.0, at_most=1.0)
    micro_batch_size: int | None = execution(
        None, "rows per forward pass; trainer.micro_batch_size if not set", at_least=1
    )


@dataclass
class PretrainConfig:
    """Phases of different sequence lengths; the schedule and the optimizer run through all."""

    phases: list[PhaseConfig] = result(
        [],
        "phases with their own sequence lengths, in order; one phase of examples.max_seq_length "
        "if empty",
    )

    def check(self) -> None:
        """Raise `UsageError` unless the shares add up to 1."""
        total = sum(phase.share for phase in self.phases)
        if self.phases and abs(total - 1) > 1e-6:
            raise UsageError(f"pretrain.phases: shares add up to {total:g}; they must add up to 1")
