"""Tiny random models for which we have no network, saved by transformers with their tokenizers."""

from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

TEXTS = (
    "The quick brown fox jumps over the lazy dog.",
    "good fine bad dull film plot the was",
    "(the) fox's “den”: café, naïve!",
) * 4
BERT_SPECIALS = {
    "pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"
}  # fmt: skip
ROBERTA_SPECIALS = {
    "cls": "<s>", "pad": "<pad>", "sep": "</s>", "unk": "<unk>", "mask": "<mask>"
}  # fmt: skip
SHAPE = {
    "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 32
}  # fmt: skip
DISTIL = {"dim": 16, "n_layers": 3, "n_heads": 2, "hidden_dim": 32}
# Name: kind of tokenizer, settings of the model. The name is its model_type, up to a plus.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "roberta": ("bytes", {**SHAPE, "type_vocab_size": 1, "max_position_embeddings": 98}),
    "xlm-roberta": ("unigram", {**SHAPE, "type_vocab_size": 1, "max_position_embeddings": 98}),
    "distilbert": ("wordpiece", {**DISTIL, "max_position_embeddings": 96}),
    "electra": ("wordpiece", {**SHAPE, "embedding_size": 8, "max_position_embeddings": 96}),
    "deberta-v2": (
        "unigram",
        {**SHAPE, "relative_attention": True, "position_buckets": 8, "norm_rel_ebd": "layer_norm",
         "share_att_key": True, "pos_att_type": ["p2c", "c2p"], "position_biased_input": False,
         "type_vocab_size": 0, "max_position_embeddings": 96, "pooler_hidden_size": 16},
    ),
    "albert": ("unigram", {**SHAPE, "embedding_size": 8, "max_position_embeddings": 96}),
    "bert+relu": ("wordpiece", {**SHAPE, "hidden_act": "relu", "max_position_embeddings": 96}),
    "roformer+relu": (
        "wordpiece",
        {**SHAPE, "hidden_act": "relu", "embedding_size": 8, "max_position_embeddings": 96},
    ),
    "modernbert+biased": (
        "wordpiece",
        {**SHAPE, "norm_bias": True, "mlp_bias": True, "classifier_activation": "relu",
         "classifier_pooling": "mean", "local_attention": 4, "max_position_embeddings": 96},
    ),
    "gpt2": ("plain", {"n_embd": 16, "n_layer": 3, "n_head": 2, "n_positions": 96}),
}  # fmt: skip


def write_model(folder: Path, name: str) -> Path:
    """Write a model with random weights to an existing folder; return it."""
    kind, settings = MODELS[name]
    words = _tokenizer(kind)
    words.save_pretrained(folder)
    torch.manual_seed(0)
    pad = words.pad_token_id if words.pad_token_id is not None else 0
    config = transformers.AutoConfig.for_model(
        name.partition("+")[0], vocab_size=len(words), pad_token_id=pad, **settings
    )
    network = transformers.AutoModel.from_config(config)
    for value in network.parameters():  # as after training: nothing is zero or one
        value.data += 0.1 * torch.randn_like(value)
    network.save_pretrained(folder)
    return folder


def _tokenizer(kind: str) -> transformers.PreTrainedTokenizerFast:
    if kind == "plain":
        return transformers.PreTrainedTokenizerFast(
            tokenizer_object=_bytes(["<end>"]), eos_token="<end>"
        )
    names = BERT_SPECIALS if kind == "wordpiece" else ROBERTA_SPECIALS
    made = {"bytes": _bytes, "unigram": _unigram, "wordpiece": _wordpiece}[kind](
        list(names.values())
    )
    cls, sep = names["cls"], names["sep"]
    is_bert = kind == "wordpiece"
    made.post_processor = processors.TemplateProcessing(
        single=f"{cls} $A {sep}",
        pair=f"{cls} $A {sep} $B:1 {sep}:1" if is_bert else f"{cls} $A {sep} {sep} $B {sep}",
        special_tokens=[(name, made.token_to_id(name)) for name in (cls, sep)],
    )
    roles: dict[str, Any] = {f"{role}_token": name for role, name in names.items()}
    if is_bert:
        roles["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, **roles)


def _bytes(specials: list[str]) -> tokenizers.Tokenizer:
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=specials, initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(TEXTS, trainer)
    return made


def _unigram(specials: list[str]) -> tokenizers.Tokenizer:
    made = tokenizers.Tokenizer(models.Unigram())
    made.normalizer = normalizers.NFKC()
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=120, special_tokens=specials, unk_token="<unk>", show_progress=False
    )
    made.train_from_iterator(TEXTS, trainer)
    return made


def _wordpiece(specials: list[str]) -> tokenizers.Tokenizer:
    made = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=120, special_tokens=specials, show_progress=False
    )
    made.train_from_iterator(TEXTS, trainer)
    return made
