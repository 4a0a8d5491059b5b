"""The interface of a model family: everything that training, export and estimates ask of a model.

A family is one folder (`bert/`, `elmo/`) with one object of this class, listed in `registry`. It
knows its network, objective, batches, state-dict mapping, metrics and cost. No other code asks
which family a model belongs to. Importing this file or a `family.py` does not import torch.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pipeline.data.cursor import BatchSchedule, Place
from pipeline.models.config import ModelConfig
from pipeline.models.cost import Cost, RowCost

if TYPE_CHECKING:
    from torch import Tensor, nn

    from data_prep.examples.chunks import ChunkStore
    from data_prep.examples.masking import MaskRule
    from pipeline.data.loader import Step
    from pipeline.models.objective import Objective
    from pipeline.models.row_gradients import RowGradients

C = TypeVar("C", bound=ModelConfig)


@dataclass(frozen=True)
class Feed:
    """The rows of one phase and one rank's way of reading them."""

    store: "ChunkStore"
    tokenizer: Path
    vocab_size: int  # number of tokens or words that can be predicted
    masks: "MaskRule"
    schedule: BatchSchedule
    seed: int
    shuffle_window: int
    rank: int
    world: int
    micro_batch_size: int | None  # None: all rows of the rank at once
    workers: int = 0
    total_steps: int | None = None  # of all phases; None: the budget is in hours


@dataclass(frozen=True)
class Unsupported:
    """A setting that a family cannot obey."""

    neutral: object  # the only value that it accepts
    why: str  # completes "model.kind=<family> …"


@dataclass(frozen=True)
class Pretrained:
    """The weights of a folder in the family's exchange format, by our parameter names."""

    config: ModelConfig
    vocab_size: int | None  # None: the folder has no weights per predicted token
    state: dict[str, "Tensor"]
    missing: list[str]  # parts of the network that the folder lacks


class Family(ABC, Generic[C]):
    """One model family. All methods are pure: an object holds no state."""

    name: str  # value of model.kind
    title: str  # for readers
    config: type[C]
    folder_format: str  # the format of exported folders: huggingface or allennlp
    reads_words: bool  # needs a vocabulary of whole words; otherwise of subwords
    masks_tokens: bool  # training masks tokens, so that the mask rule shapes the result
    free_to_change: tuple[str, ...]  # options that change no weight's shape or meaning
    objective_keys: tuple[str, ...]  # options that only pretraining reads, no encoder
    unsupported: Mapping[str, Unsupported] = {}  # by config key

    # Network and objective

    @abstractmethod
    def build(
        self, config: C, vocab_size: int, *, rows: int, seed: int, checkpoint_activations: bool
    ) -> "tuple[nn.Module, Objective]":
        """Return the network with random weights, and its objective.

        `rows` is the number of rows of this rank in one step.
        """

    def stacked_matrices(self, name: str) -> int:
        """Return how many matrices are stacked in a hidden matrix, by its parameter's name; 0: it
        is no hidden matrix, but an embedding or an output layer."""
        del name
        return 0

    def keep_row_gradients(
        self, config: C, network: "nn.Module", vocab_size: int
    ) -> "dict[str, RowGradients]":
        """Make the network keep gradients of large, sparsely read matrices by row; return them by
        parameter name. Empty if it has none."""
        del config, network, vocab_size
        return {}

    # Batches

    @abstractmethod
    def steps(self, config: C, feed: Feed, place: Place) -> "Iterable[Step]":
        """Return this rank's optimizer steps from `place` on."""

    @abstractmethod
    def held_out(self, config: C, feed: Feed, rows: int) -> Iterable[Any]:
        """Return this rank's batches of the first `rows` held-out rows.

        Every rank gets an equal number of batches. `feed.micro_batch_size` must be set.
        """

    @abstractmethod
    def tokens_per_row(self, config: C, store: "ChunkStore") -> float:
        """Return the mean number of tokens per row."""

    @abstractmethod
    def predicted_size(self, tokenizer: Path) -> int:
        """Return the number of tokens or words that a model with this tokenizer can predict."""

    # Folders in the exchange format

    @abstractmethod
    def recognises(self, folder: Path) -> bool:
        """Return True if the folder holds a model of this family, judged by its file names."""

    @abstractmethod
    def read_config(self, folder: Path) -> C:
        """Read the model's options from a folder. Raises `SesameError` if it is not supported."""

    def foreign_setting(self, folder: Path) -> str | None:
        """Return the setting of a folder for which only transformers may have a network, such as
        `hidden_act=relu`; None if our network computes the encoder."""
        del folder
        return None

    @abstractmethod
    def load(self, folder: Path) -> Pretrained:
        """Read the weights of a folder. Raises `SesameError` if they are damaged or incomplete."""

    def check_export(self, config: C, pairs: str) -> None:
        """Raise `UsageError` if the model cannot be exported. `pairs` is `examples.pairs`."""
        del config, pairs

    def architecture(self, config: C) -> str | None:
        """Return transformers' name (`model_type`) of what computes the same; None without one."""
        del config
        return None

    # Cost

    @abstractmethod
    def cost(self, config: C, vocab_size: int) -> Cost:
        """Return the arithmetic of parameters, FLOPs and memory."""

    @abstractmethod
    def row_cost(
        self, config: C, vocab_size: int, store: "ChunkStore", max_seq_length: int
    ) -> RowCost:
        """Return the training cost of a phase's rows, for utilisation."""

    # Word vectors (init.vectors)

    def vector_width(self, config: C) -> int | None:
        """Return the width of word vectors that embeddings can start from; None: they cannot."""
        del config
        return None

    def start_embeddings(
        self, network: "nn.Module", vectors: Path, tokenizer: Path
    ) -> tuple[int, int]:
        """Set embeddings from a folder of word vectors, in place; return how many of how many."""
        del network, vectors, tokenizer
        raise AssertionError(f"{self.name}: vector_width is None")
