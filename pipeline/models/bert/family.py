"""BERT as a family: masked tokens and pairs; exchanged as Hugging Face folders."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.data.cursor import Place
from pipeline.models.bert.architectures import ARCHITECTURES, fitting, foreign_setting, read_stated
from pipeline.models.bert.config import BertConfig
from pipeline.models.bert.cost import BertCost
from pipeline.models.cost import RowCost
from pipeline.models.family import Family, Feed, Pretrained
from pipeline.models.sums import Sums

if TYPE_CHECKING:
    from torch import nn

    from data_prep.examples.chunks import ChunkStore
    from pipeline.data.batch import Batch
    from pipeline.data.loader import Step
    from pipeline.models.objective import Objective


class BertFamily(Family[BertConfig]):
    """BERT and its modern variants (RoFormer, ModernBERT)."""

    name = "bert"
    title = "BERT"
    config = BertConfig
    folder_format = "huggingface"
    reads_words = False
    masks_tokens = True
    free_to_change = ("dropout", "attention_dropout", "init_std")
    objective_keys = ("tied",)

    def build(
        self,
        config: BertConfig,
        vocab_size: int,
        *,
        rows: int,
        seed: int,
        checkpoint_activations: bool,
    ) -> "tuple[nn.Module, Objective]":
        from pipeline.models.bert.network import BertForPretraining
        from pipeline.models.bert.objective import MaskedTokens

        return BertForPretraining(config, vocab_size, checkpoint_activations), MaskedTokens()

    def stacked_matrices(self, name: str) -> int:
        """Query, key and value are one parameter of three matrices."""
        if not name.startswith("bert.layers."):
            return 0
        return 3 if ".qkv." in name else 1

    def steps(self, config: BertConfig, feed: Feed, place: Place) -> "Iterable[Step]":
        from data_prep.examples.masking import Vocabulary
        from data_prep.tokenizers import Tokenizer
        from pipeline.data.loader import Loader
        from pipeline.data.order import Order

        return Loader(
            feed.store,
            Order(feed.store.rows_per_chunk, feed.seed, feed.shuffle_window),
            Vocabulary.of(Tokenizer.load(feed.tokenizer)),
            feed.masks,
            feed.schedule,
            rank=feed.rank,
            world=feed.world,
            micro_batch_size=feed.micro_batch_size,
            workers=feed.workers,
            total_steps=feed.total_steps,
            place=place,
        )

    def held_out(self, config: BertConfig, feed: Feed, rows: int) -> "Iterable[Batch]":
        from pipeline.data.loader import HeldOut

        assert feed.micro_batch_size is not None
        return HeldOut(
            feed.store,
            rows=rows,
            micro_batch_size=feed.micro_batch_size,
            rank=feed.rank,
            world=feed.world,
        )

    def tokens_per_row(self, config: BertConfig, store: "ChunkStore") -> float:
        return store.tokens / max(store.rows, 1)

    def predicted_size(self, tokenizer: Path) -> int:
        from data_prep.tokenizers import Tokenizer

        return Tokenizer.load(tokenizer).size

    def recognises(self, folder: Path) -> bool:
        return (folder / "config.json").exists()

    def read_config(self, folder: Path) -> BertConfig:
        return read_stated(folder).config

    def foreign_setting(self, folder: Path) -> str | None:
        return foreign_setting(folder)

    def load(self, folder: Path) -> Pretrained:
        """Read encoder and heads; missing heads are in the state with random weights."""
        from pipeline.models.bert.huggingface import load_for_pretraining

        source, missing = load_for_pretraining(folder)
        bert = source.bert
        return Pretrained(bert.config, bert.vocab_size, source.state_dict(), missing)

    def check_export(self, config: BertConfig, pairs: str) -> None:
        """Raise `UsageError` if no architecture of transformers computes the same."""
        fitting(config, pairs)

    def architecture(self, config: BertConfig) -> str | None:
        names = [each.model_type for each in ARCHITECTURES if not each.amiss(config, "none")]
        return names[0] if names else None

    def cost(self, config: BertConfig, vocab_size: int) -> BertCost:
        return BertCost(config, vocab_size)

    def row_cost(
        self, config: BertConfig, vocab_size: int, store: "ChunkStore", max_seq_length: int
    ) -> RowCost:
        cost = self.cost(config, vocab_size)
        mean_length = store.tokens / max(store.examples, 1)

        def flops(sums: Sums) -> float:
            predicted = sums["predictions"] / max(sums.tokens, 1)
            return cost.flops_per_token(mean_length, predicted) * sums.tokens

        return RowCost(max_seq_length, flops)

    def vector_width(self, config: BertConfig) -> int:
        return config.hidden

    def start_embeddings(
        self, network: "nn.Module", vectors: Path, tokenizer: Path
    ) -> tuple[int, int]:
        """Set token embeddings; a token that occurs in no word keeps its random vector."""
        import torch

        from data_prep.tokenizers import Tokenizer
        from data_prep.vectors.table import read_table
        from pipeline.models.bert.network import BertForPretraining
        from pipeline.models.bert.piece_vectors import piece_vectors

        assert isinstance(network, BertForPretraining)
        config, weight_VD = network.bert.config, network.bert.embeddings.tokens.weight
        pieces_P, vectors_PD = piece_vectors(
            read_table(vectors), Tokenizer.load(tokenizer), config.hidden, config.init_std
        )
        with torch.no_grad():
            weight_VD[torch.from_numpy(pieces_P)] = torch.from_numpy(vectors_PD)
        return len(pieces_P), len(weight_VD)


BERT = BertFamily()
