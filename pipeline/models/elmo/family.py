"""ELMo as a family: next words of endless streams; exchanged as AllenNLP's pair of files."""

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.data.cursor import Place
from pipeline.models.cost import RowCost
from pipeline.models.elmo.allennlp_options import find_pair, read_options
from pipeline.models.elmo.config import ElmoConfig
from pipeline.models.elmo.cost import ElmoCost
from pipeline.models.family import Family, Feed, Pretrained, Unsupported

if TYPE_CHECKING:
    from torch import nn

    from data_prep.examples.chunks import ChunkStore
    from pipeline.data.loader import Step
    from pipeline.data.streams import StreamSlice, WordBatch, Words
    from pipeline.models.objective import Objective
    from pipeline.models.row_gradients import RowGradients

SOFTMAX = "softmax.safetensors"  # beside an AllenNLP pair, whose format does not include it


class ElmoFamily(Family[ElmoConfig]):
    """ELMo. A row is the next window of one stream."""

    name = "elmo"
    title = "ELMo"
    config = ElmoConfig
    folder_format = "allennlp"
    reads_words = True
    masks_tokens = False
    free_to_change = ("dropout", "window", "samples", "forget_every")
    objective_keys = ("window", "samples", "forget_every")
    unsupported = {  # noqa: RUF012 the interface declares it read-only
        "pretrain.phases": Unsupported([], "has no lengths; set it to []"),
        "init.vectors": Unsupported(False, "embeds characters, not tokens; set it to false"),
        "trainer.ramp_steps": Unsupported(
            0, "has the same number of streams in every step; set it to 0"
        ),
        "trainer.loader_workers": Unsupported(
            0, "reads its streams in the training process; set it to 0"
        ),
        "trainer.activation_checkpointing": Unsupported(
            False, "keeps its activations; set it to false"
        ),
        "trainer.compile": Unsupported(
            False, "has its own LSTM, which is not compiled; set it to false"
        ),
    }

    def build(
        self,
        config: ElmoConfig,
        vocab_size: int,
        *,
        rows: int,
        seed: int,
        checkpoint_activations: bool,
    ) -> "tuple[nn.Module, Objective]":
        from pipeline.models.elmo.network import ElmoForPretraining
        from pipeline.models.elmo.objective import NextWords

        network = ElmoForPretraining(config, vocab_size)
        return network, NextWords(config, vocab_size, rows, seed)

    def stacked_matrices(self, name: str) -> int:
        """The four gates of an LSTM are one parameter of four matrices."""
        if not name.startswith("elmo.directions."):
            return 0
        return 1 if name.endswith(".projection") else 4

    def keep_row_gradients(
        self, config: ElmoConfig, network: "nn.Module", vocab_size: int
    ) -> "dict[str, RowGradients]":
        """The softmax, unless it is exact and reads all rows."""
        from pipeline.models.elmo.network import ElmoForPretraining
        from pipeline.models.row_gradients import RowGradients

        assert isinstance(network, ElmoForPretraining)
        if not config.samples_words(vocab_size):
            return {}
        softmax = network.softmax
        softmax.row_gradients = RowGradients(softmax.weight)
        return {"softmax.weight": softmax.row_gradients}

    def steps(self, config: ElmoConfig, feed: Feed, place: Place) -> "Iterable[Step]":
        from pipeline.data.streams import StreamLoader

        return StreamLoader(
            feed.store,
            _words(config, feed),
            _streams(feed),
            config.window,
            micro_batch_size=feed.micro_batch_size,
            place=place,
        )

    def held_out(self, config: ElmoConfig, feed: Feed, rows: int) -> "Iterable[WordBatch]":
        from pipeline.data.streams import HeldOutStreams

        assert feed.micro_batch_size is not None
        return HeldOutStreams(
            feed.store,
            _words(config, feed),
            _streams(feed),
            config.window,
            rows=rows,
            micro_batch_size=feed.micro_batch_size,
        )

    def tokens_per_row(self, config: ElmoConfig, store: "ChunkStore") -> float:
        return config.window

    def predicted_size(self, tokenizer: Path) -> int:
        from data_prep.tokenizers.vocabulary import VOCABULARY, read_vocabulary

        return len(read_vocabulary(tokenizer / VOCABULARY))

    def recognises(self, folder: Path) -> bool:
        return find_pair(folder) is not None

    def read_config(self, folder: Path) -> ElmoConfig:
        pair = find_pair(folder)
        assert pair is not None, "recognises() was False"
        return read_options(pair[0])

    def load(self, folder: Path) -> Pretrained:
        """Read the pair, and the softmax where it lies beside it."""
        from pipeline.models.elmo.allennlp import load_allennlp, read_softmax

        elmo = load_allennlp(folder)
        state = {f"elmo.{name}": tensor for name, tensor in elmo.state_dict().items()}
        if not (folder / SOFTMAX).is_file():
            return Pretrained(elmo.config, None, state, ["the softmax over words"])
        softmax = read_softmax(folder / SOFTMAX, elmo.config)
        state |= {f"softmax.{name}": tensor for name, tensor in softmax.items()}
        return Pretrained(elmo.config, len(softmax["bias"]), state, [])

    def cost(self, config: ElmoConfig, vocab_size: int) -> ElmoCost:
        return ElmoCost(config, vocab_size)

    def row_cost(
        self, config: ElmoConfig, vocab_size: int, store: "ChunkStore", max_seq_length: int
    ) -> RowCost:
        per_word = self.cost(config, vocab_size).flops_per_token()
        return RowCost(config.window, lambda sums: per_word * sums.tokens)


def _streams(feed: Feed) -> "StreamSlice":
    from pipeline.data.streams import StreamSlice

    return StreamSlice(feed.schedule.global_batch_size, feed.rank, feed.world)


def _words(config: ElmoConfig, feed: Feed) -> "Words":
    return _load_words(feed.tokenizer, feed.vocab_size, config.max_characters)


@lru_cache(maxsize=1)  # shared by training and every evaluation
def _load_words(tokenizer: Path, predicted: int, max_characters: int) -> "Words":
    from data_prep.tokenizers import Tokenizer
    from pipeline.data.streams import Words

    return Words.of(Tokenizer.load(tokenizer), predicted, max_characters)


ELMO = ElmoFamily()
