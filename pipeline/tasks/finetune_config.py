"""Configuration of fine-tuning (`finetune`) and of the layer table (`layers`)."""

import math
from dataclasses import dataclass

from data_prep.errors import UsageError
from data_prep.fields import execution, result

LAYERS = (
    "embeddings", "last", "second_to_last", "sum_last_4", "concat_last_4", "sum_all", "mix",
)  # fmt: skip


@dataclass
class FinetuneConfig:
    """Settings for fine-tuning an encoder and a head on a task."""

    lr: float = result(5e-5, "peak learning rate", at_least=0.0)
    head_lr: float | None = result(
        None, "peak learning rate of the head; a CRF's transitions hardly move at the encoder's; "
        "when not set, finetune.lr", at_least=0.0, is_later=True,
    )  # fmt: skip
    layer_decay: float = result(
        1.0, "learning rate of an encoder layer divided by the rate of the layer above it",
        at_least=0.0, at_most=1.0,
    )  # fmt: skip
    batch_size: int = result(32, "inputs per optimizer step; multiple choice: examples", at_least=1)
    epochs: int = result(3, "passes over the training examples", at_least=1)
    seed: int = result(
        0, "seed of the head's initial weights, the data order and the sample of labels", at_least=0
    )
    mode: str = result(
        "full", "full = train encoder and head; frozen = train the head only",
        choices=("full", "frozen"),
    )  # fmt: skip
    layers: str = result(
        "last",
        "hidden states that the head reads: one of " + ", ".join(LAYERS) + ", or the number of a "
        "layer (0 are the embeddings)",
    )
    pooling: str | None = result(
        None,
        "how the vectors of a sentence become one vector; pooler is the layer over the first token "
        "that transformers' classes have; when not set, the pooler where the encoder has one and "
        "is trained with a linear head on its last layer, else the mean",
        choices=("pooler", "mean", "first", "max"),
    )
    pair_encoding: str = result(
        "joint",
        "encode the two sentences of a pair in one input (joint), or each on its own (separate); "
        "encoders that cannot join sentences always encode them separately",
        choices=("joint", "separate"), is_later=True,
    )  # fmt: skip
    head: str = result(
        "linear",
        "linear = one linear layer on the encoder; bilstm, bigru = two such recurrent layers below "
        "the linear layer",
        choices=("linear", "bilstm", "bigru"),
    )
    head_width: int = result(
        200,
        "hidden size of a recurrent head, per direction (Peters et al. 2018, supplement: 200)",
        at_least=1, is_later=True,
    )  # fmt: skip
    crf: bool = result(
        False, "choose the tags of a sentence jointly, with a CRF on the logits (task.kind=tag)"
    )
    dropout: float = result(
        0.1, "dropout probability before the head's linear layer", at_least=0.0, at_most=0.9
    )
    warmup: float = result(
        0.1, "fraction of the steps in which the learning rate rises", at_least=0.0, at_most=1.0
    )
    schedule: str = result(
        "linear",
        "learning rate after warm-up: linear or cosine decay to zero",
        choices=("linear", "cosine"),
        is_later=True,
    )
    weight_decay: float = result(
        0.01, "weight decay; biases and norms are never decayed", at_least=0.0
    )
    clip: float = result(
        1.0, "maximum gradient norm; larger gradients are scaled down; 0 = no limit", at_least=0.0
    )
    max_seq_length: int = result(
        128, "maximum tokens of an input; longer inputs are truncated", at_least=8
    )
    eval_every: int | None = result(
        None, "optimizer steps between evaluations on the development set; when not set, one per "
        "epoch", at_least=1, is_later=True,
    )  # fmt: skip
    patience: int | None = result(
        None, "stop after this many evaluations (epochs) without a better development score; "
        "counts only after a score above 0", at_least=1,
    )  # fmt: skip
    precision: str = result(
        "fp32", "precision of the forward and backward pass", choices=("fp32", "bf16-mixed"),
        is_later=True,
    )  # fmt: skip
    accelerator: str = execution(
        "auto", "device to compute on", choices=("auto", "cpu", "cuda", "mps")
    )
    engine: str = execution(
        "auto",
        "plain = a loop in this process, which starts at once; ranks = pretraining's engine in "
        "processes of its own; auto = plain on a CPU unless another key needs ranks",
        choices=("auto", "plain", "ranks"),
    )
    devices: int = execution(1, "devices that share each batch (ranks)", at_least=1)
    strategy: str | None = execution(
        None, "how devices divide the work (ranks); when not set, single or ddp",
        choices=("single", "ddp", "zero1", "zero2"),
    )  # fmt: skip
    micro_batch_size: int | None = execution(
        None, "inputs per forward pass on a device; fewer need less memory (ranks)", at_least=1
    )
    activation_checkpointing: bool = execution(
        False, "recompute activations in the backward pass to save memory (ranks)"
    )
    checkpoint_minutes: float = execution(
        10.0, "minutes of training between checkpoints, from which a killed fine-tuning goes on",
        at_least=0.0,
    )  # fmt: skip
    timeout_minutes: float = execution(
        10.0, "end the training with a stack dump if a step, an evaluated batch or a checkpoint "
        "takes longer (ranks)", at_least=0.0,
    )  # fmt: skip

    @property
    def needs_ranks(self) -> list[str]:
        """The keys that are set and that only ranks obey, as key=value."""
        given = {
            "precision": self.precision != "fp32",
            "devices": self.devices > 1,
            "strategy": self.strategy not in (None, "single"),
            "micro_batch_size": self.micro_batch_size is not None,
            "activation_checkpointing": self.activation_checkpointing,
        }
        return [f"finetune.{key}={getattr(self, key)}" for key, is_set in given.items() if is_set]

    def refuse_parts(self) -> None:
        """Raise a UsageError for micro-batches, where sentences of pairs are encoded separately."""
        share = math.ceil(self.batch_size / self.devices)
        if self.micro_batch_size is not None and self.micro_batch_size < share:
            raise UsageError(
                f"finetune.micro_batch_size={self.micro_batch_size}: sentences of pairs that are "
                "encoded separately are compared by their mean similarity in the whole batch, so a "
                f"device must take its {share} inputs at once; leave it out and set "
                "finetune.activation_checkpointing=true or more finetune.devices"
            )

    def check(self) -> None:
        """Raise a UsageError for keys that contradict each other."""
        if (self.engine == "plain" or self.mode == "frozen") and self.needs_ranks:
            why = "finetune.engine=plain" if self.engine == "plain" else "finetune.mode=frozen"
            raise UsageError(
                f"{self.needs_ranks[0]}: {why} trains on one device in this process, in fp32; "
                "leave one of them out"
            )
        if self.engine == "ranks" and self.mode == "frozen":
            raise UsageError(
                "finetune.engine=ranks: finetune.mode=frozen trains only a head, on stored hidden "
                "states, in this process; leave one of them out"
            )
        if self.devices > self.batch_size:
            raise UsageError(
                f"finetune.devices={self.devices}: more than finetune.batch_size="
                f"{self.batch_size}, so some would have nothing to do; use fewer"
            )
        if self.strategy == "single" and self.devices > 1:
            raise UsageError(
                f"finetune.strategy=single: cannot use finetune.devices={self.devices}; "
                "choose ddp, zero1 or zero2"
            )
        if self.layers not in LAYERS and not self.layers.isdigit():
            raise UsageError(
                f"finetune.layers={self.layers}: must be one of {', '.join(LAYERS)}, or the number "
                "of a layer"
            )
        is_epochs = self.eval_every is None  # what finetune.patience counts
        if self.patience is not None and is_epochs and self.patience > self.epochs:
            raise UsageError(
                f"finetune.patience={self.patience}: larger than finetune.epochs={self.epochs}"
            )


@dataclass
class LayersConfig:
    """Settings of the layer table: one head per layer choice and seed, on a frozen encoder."""

    seeds: int = result(3, "heads trained per layer choice", at_least=1)
    width: int = result(
        768, "hidden size of the BiLSTM, per direction (Devlin et al. 2019, section 5.3: 768)",
        at_least=1, is_later=True,
    )  # fmt: skip
    lr: float = result(1e-3, "peak learning rate of the heads", at_least=0.0)
    epochs: int = result(10, "passes over the training examples", at_least=1)
    patience: int | None = result(
        2, "stop after this many epochs without a better development score; counts only after a "
        "score above 0", at_least=1,
    )  # fmt: skip
