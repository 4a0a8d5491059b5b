"""Export a checkpoint as a Hugging Face folder: config, weights, tokenizer and model card.

Every export is verified: transformers loads the folder offline, and its logits and token ids must
equal ours.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor

from data_prep.errors import SesameError
from data_prep.files import atomic_write, write_atomically
from data_prep.tokenizers import Tokenizer
from pipeline.encoders.tokenizer_files import copy_tokenizer
from pipeline.export.card import Facts, model_card, pairs_of
from pipeline.export.sentence_transformers import write_sentence_transformers
from pipeline.models.bert.architectures import Architecture, fitting
from pipeline.models.bert.config import BertConfig
from pipeline.models.bert.huggingface import to_huggingface
from pipeline.models.bert.network import BertForPretraining
from pipeline.models.untrusted import State

TOLERANCE = 1e-5
PROBE_LENGTHS = (5, 16, 9)  # unequal lengths, so that padding is verified too
PROBES = (
    "The quick brown fox jumps over the lazy dog.",
    "naïve Ünïcödé, 12,345.67 (tests)!",
    "Москва 東京 don't well-known",
)


def export_huggingface(
    weights: State, config: BertConfig, vocab_size: int, tokenizer: Path, out: Path, facts: Facts
) -> dict[str, Any]:
    """Write the folder `out`, verify it, and return counts; raise a SesameError if it is wrong."""
    architecture = fitting(config, pairs_of(facts.recipe))
    words = Tokenizer.load(tokenizer)
    if words.size != vocab_size:
        raise SesameError(
            f"{tokenizer}: its vocabulary has {words.size} tokens, but the model's {vocab_size}; "
            "use the tokenizer of the pretraining"
        )
    model = BertForPretraining(config, vocab_size)
    model.load_state_dict(weights)
    theirs = to_huggingface(model.state_dict(), architecture, config)
    with atomic_write(out / "model.safetensors") as stream:
        stream.write(save(theirs, {"format": "pt"}))
    stated = architecture.stated(config, vocab_size, words.pad)
    write_atomically(out / "config.json", json.dumps(stated, indent=2) + "\n")
    copy_tokenizer(tokenizer, out, config.max_positions, config.segments)
    if (pooling := facts.export.sentence_vectors) is not None:
        write_sentence_transformers(out, config.hidden, config.max_positions, pooling)
    card = model_card(architecture, config, vocab_size, words.kind, facts)
    write_atomically(out / "README.md", card)
    _prove_tokenizer(words, out)
    _prove_weights(model, architecture, words.pad, out)
    return {
        "step": facts.step,
        "parameters": sum(tensor.numel() for tensor in model.parameters()),
    }


def _prove_tokenizer(words: Tokenizer, out: Path) -> None:
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(out, local_files_only=True)
    ours = words.encode(PROBES)
    for number, probe in enumerate(PROBES):
        if theirs(probe, add_special_tokens=False)["input_ids"] != ours[number].tolist():
            raise SesameError(f"{out}: transformers tokenises {probe!r} differently than we do")
    special = (theirs.pad_token_id, theirs.cls_token_id, theirs.sep_token_id, theirs.mask_token_id)
    if special != (words.pad, words.cls, words.sep, words.mask):
        raise SesameError(f"{out}: transformers has other ids for special tokens than we do")


@torch.no_grad()
def _prove_weights(
    model: BertForPretraining, architecture: Architecture, pad: int, out: Path
) -> None:
    """Compare logits in double precision, where only a wrong mapping makes a difference.

    ModernBERT in transformers applies rotary embeddings in single precision even so. Therefore the
    allowed difference is at least the one between our own single and double precision.
    """
    from transformers import AutoModelForMaskedLM, AutoModelForPreTraining
    from transformers.utils import logging

    logging.disable_progress_bar()  # it would overwrite our own progress bar
    kind = AutoModelForPreTraining if architecture.has_pairs else AutoModelForMaskedLM
    theirs = kind.from_pretrained(out, local_files_only=True).double().eval()
    lengths = np.minimum(np.array(PROBE_LENGTHS), model.bert.config.max_positions)
    real_BL = torch.arange(int(lengths.max())) < torch.from_numpy(lengths)[:, None]
    generator = torch.Generator().manual_seed(0)
    tokens_BL = torch.randint(model.bert.vocab_size, real_BL.shape, generator=generator)
    tokens_BL = tokens_BL.where(real_BL, torch.tensor(pad))
    positions_BL = torch.arange(real_BL.shape[1]).expand_as(tokens_BL)
    segments_BL = (positions_BL >= torch.from_numpy(lengths // 2)[:, None]).long()
    flat = (tokens_BL[real_BL], positions_BL[real_BL], segments_BL[real_BL], lengths)
    single_masked, single_pair = model.eval().predict(*flat)
    masked, pair = model.double().predict(*flat)
    told = {"token_type_ids": segments_BL} if model.bert.config.segments else {}
    answer = theirs(tokens_BL, attention_mask=real_BL.long(), **told)
    _prove_equal("masked-LM", answer[0][real_BL], masked, single_masked, out)
    if architecture.has_pairs:
        _prove_equal("pair", answer.seq_relationship_logits, pair, single_pair, out)


def _prove_equal(head: str, theirs: Tensor, ours: Tensor, single: Tensor, out: Path) -> None:
    difference = float((theirs - ours).abs().max())
    allowed = max(TOLERANCE, float((single - ours).abs().max()))
    if not difference <= allowed:  # written so that NaN fails
        raise SesameError(
            f"{out}: {head} logits in transformers differ from ours by {difference:.2g}, more than "
            f"{allowed:.2g}: the export is not valid"
        )
