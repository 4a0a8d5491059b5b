"""Predict the most probable tokens for each [MASK] of a text with a BERT.

Reads any Hugging Face BERT folder with a masked-LM head, such as our exports. From Python:
    for guesses in load_filler("demo").fill("The capital of [MASK] is Paris."):
        guesses[0].piece, guesses[0].probability
Try it: sesame fill encoder=demo 'text=The film was [MASK].'
"""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from data_prep.errors import UsageError
from data_prep.tokenizers import Tokenizer
from data_prep.vectors.table import VECTORS
from pipeline.models.bert.huggingface import HEADS, load_for_pretraining
from pipeline.models.bert.network import BertForPretraining
from pipeline.models.registry import family_of_folder

MASK = "[MASK]"  # marks a blank in the text, also if the vocabulary's mask token differs


@dataclass(frozen=True)
class Guess:
    """A predicted token for a blank, with its probability."""

    piece: str
    probability: float


@dataclass(frozen=True)
class Filler:
    """A BERT with its masked-LM head and its tokenizer."""

    model: BertForPretraining
    tokenizer: Tokenizer

    @torch.inference_mode()
    def fill(self, text: str, top: int = 5) -> list[list[Guess]]:
        """Return the `top` most probable tokens for each blank, most probable first."""
        ids = self.encode(text)
        tokens_N = torch.from_numpy(ids).long()
        positions_N = torch.arange(len(ids))
        logits_NV, _ = self.model.eval().predict(
            tokens_N, positions_N, torch.zeros_like(tokens_N), np.array([len(ids)])
        )
        shares_MV = logits_NV[tokens_N == self.tokenizer.mask].softmax(1)
        best = shares_MV.topk(min(top, shares_MV.shape[1]))
        return [
            [Guess(self.tokenizer.decode([id]), share) for id, share in zip(*blank, strict=True)]
            for blank in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]

    def encode(self, text: str) -> NDArray[np.int32]:
        """Return the ids of [CLS] text [SEP], with the vocabulary's mask token for each blank."""
        own = self.tokenizer.piece(self.tokenizer.mask)
        parts = re.split("|".join(re.escape(mask) for mask in {MASK, own}), text)
        if len(parts) == 1:
            raise UsageError(f"text: has no blank; write {MASK} for the word to predict")
        encoded = self.tokenizer.encode(parts)
        ids = [self.tokenizer.cls, *encoded[0].tolist()]
        for part in range(1, len(parts)):
            ids += [self.tokenizer.mask, *encoded[part].tolist()]
        ids.append(self.tokenizer.sep)
        if len(ids) > self.model.bert.config.max_positions:
            raise UsageError(
                f"text: its {len(ids)} tokens are more than the encoder's "
                f"{self.model.bert.config.max_positions} positions; shorten it"
            )
        return np.array(ids, np.int32)


def read_filler(folder: Path) -> Filler:
    """Load the model of a folder; raise a UsageError if it has no masked-LM head."""
    if (folder / VECTORS).exists():
        raise UsageError(f"encoder={folder}: word vectors fill no blanks; name a BERT")
    if not family_of_folder(folder).masks_tokens:
        raise UsageError(f"encoder={folder}: an ELMo guesses next words, not blanks; name a BERT")
    model, fresh = load_for_pretraining(folder)
    if HEADS["masked"] in fresh:
        raise UsageError(
            f"encoder={folder}: has no {HEADS['masked']}, so it cannot fill blanks; name a BERT "
            "that has one, such as a run of your own"
        )
    return Filler(model, Tokenizer.load(folder))
