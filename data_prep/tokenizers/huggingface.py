"""Build tokenizers of the `tokenizers` library, and write folders that `AutoTokenizer` loads.

Writes tokenizer.json, tokenizer_config.json, special_tokens_map.json, vocab.txt or spiece.model,
and sesame.json (kind, size and special ids, readable without the library).
"""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors

from data_prep.errors import SesameError
from data_prep.files import write_atomically
from data_prep.tokenizers.normalise import bert_normaliser, sentencepiece_normaliser

SPACE_MARK = "▁"
BYTE_PIECE = r"<0x[0-9A-F]{2}>"
KINDS = {"WordPiece": "wordpiece", "Unigram": "unigram", "BPE": "bpe", "WordLevel": "words"}


@dataclass(frozen=True)
class Specials:
    """The names of a vocabulary's special tokens."""

    pad: str = "[PAD]"
    unk: str = "[UNK]"
    cls: str = "[CLS]"
    sep: str = "[SEP]"
    mask: str = "[MASK]"

    def names(self) -> list[str]:
        """Return the names in the order of the ids in the vocabularies we train."""
        return [self.pad, self.unk, self.cls, self.sep, self.mask]

    def as_tokens(self) -> dict[str, str]:
        """Return the names by their keys in transformers' configuration."""
        return {f"{role}_token": name for role, name in asdict(self).items()}


def from_vocabulary(
    vocabulary: list[str],
    lowercase: bool,
    strip_accents: bool,
    specials: Specials,
    user_symbols: Sequence[str] = (),
) -> Tokenizer:
    """Return BERT's WordPiece with this vocabulary.

    User symbols are found in the text before it is split into words.
    """
    ids = {piece: number for number, piece in enumerate(vocabulary)}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token=specials.unk))
    tokenizer.normalizer = bert_normaliser(lowercase, strip_accents)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    tokenizer.add_tokens([AddedToken(symbol, normalized=False) for symbol in user_symbols])
    return finished(tokenizer, specials)


def from_sentencepiece(
    model: bytes, lowercase: bool, strip_accents: bool, specials: Specials
) -> Tokenizer:
    """Convert a SentencePiece model to the library's Unigram or BPE.

    Raises SesameError if the model is of another type.
    """
    proto: Any = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model)
    trained = proto.trainer_spec
    if trained.model_type == trained.UNIGRAM:
        tokenizer = Tokenizer(_unigram(proto))
    elif trained.model_type == trained.BPE:
        tokenizer = Tokenizer(_bpe(proto))
    else:
        raise SesameError(
            "tokenizer.source: a SentencePiece model must be of type unigram or bpe, not "
            f"{trained.ModelType.Name(trained.model_type).lower()}"
        )
    prepend = "always" if proto.normalizer_spec.add_dummy_prefix else "never"
    silent = [piece.piece for piece in proto.pieces if piece.type in (piece.CONTROL, piece.UNKNOWN)]
    tokenizer.normalizer = sentencepiece_normaliser(
        lowercase, strip_accents, proto.normalizer_spec.precompiled_charsmap
    )
    cutters = [pre_tokenizers.Metaspace(SPACE_MARK, prepend), _keep_apart(silent)]
    user_symbols = [piece.piece for piece in proto.pieces if piece.type == piece.USER_DEFINED]
    if user_symbols:
        cutters.append(_set_apart(user_symbols))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(cutters)
    tokenizer.decoder = decoders.Sequence(
        [decoders.ByteFallback(), decoders.Metaspace(SPACE_MARK, prepend)]
    )
    return finished(tokenizer, specials)


def _unigram(proto: Any) -> models.Model:
    # The scores have single precision. The library's JSON reader changes the last bit of long
    # decimals, but not of the shortest ones.
    vocabulary = [(piece.piece, float(str(np.float32(piece.score)))) for piece in proto.pieces]
    return models.Unigram(vocabulary, proto.trainer_spec.unk_id, proto.trainer_spec.byte_fallback)


def _bpe(proto: Any) -> models.Model:
    """Build BPE merges: SentencePiece ranks tokens, the library ranks pairs of tokens.

    So every pair that makes a token is listed, in the order of the tokens' scores.
    """
    ids = {piece.piece: number for number, piece in enumerate(proto.pieces)}
    scores = {piece.piece: piece.score for piece in proto.pieces if piece.type == piece.NORMAL}
    merges = [
        (piece[:cut], piece[cut:])
        for piece, _ in sorted(scores.items(), key=lambda item: -item[1])
        for cut in range(1, len(piece))
        if piece[:cut] in scores and piece[cut:] in scores
    ]
    return models.BPE(
        ids,
        merges,
        unk_token=proto.pieces[proto.trainer_spec.unk_id].piece,
        fuse_unk=True,
        byte_fallback=proto.trainer_spec.byte_fallback,
        # No merges make a user symbol; `_set_apart` isolates it, so it is looked up as a whole.
        ignore_merges=any(piece.type == piece.USER_DEFINED for piece in proto.pieces),
    )


def _keep_apart(controls: list[str]) -> pre_tokenizers.PreTokenizer:
    """Split the name of a control token in plain text after its first character.

    The library's Unigram would read it as the control token, which SentencePiece never does. No
    token of running text is lost: SentencePiece never joins brackets and letters.
    """
    literals = [
        rf"{re.escape(name[0])}(?={re.escape(name[1:])})" for name in controls if len(name) > 1
    ]
    pattern = "|".join([*literals, rf"<(?={BYTE_PIECE[1:]})"])
    return pre_tokenizers.Split(Regex(pattern), "merged_with_previous")


def _set_apart(symbols: list[str]) -> pre_tokenizers.PreTokenizer:
    """Isolate user symbols, longest first, as SentencePiece does.

    They are not added tokens of the library: after these it begins a new word, SentencePiece does
    not.
    """
    pattern = "|".join(map(re.escape, sorted(symbols, key=len, reverse=True)))
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def finished(tokenizer: Tokenizer, specials: Specials) -> Tokenizer:
    """Declare the special tokens and BERT's template ([CLS] A [SEP] B [SEP]); changes `tokenizer`.

    A special token that the vocabulary lacks gets a new id. Returns the same tokenizer.
    """
    tokenizer.add_special_tokens(
        [AddedToken(name, normalized=False, special=True) for name in specials.names()]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{specials.cls}:0 $A:0 {specials.sep}:0",
        pair=f"{specials.cls}:0 $A:0 {specials.sep}:0 $B:1 {specials.sep}:1",
        special_tokens=[
            (name, tokenizer.token_to_id(name)) for name in (specials.cls, specials.sep)
        ],
    )
    return tokenizer


def pieces_of(tokenizer: Tokenizer) -> list[str]:
    """Return all tokens by id; an id that is not used has an empty string."""
    by_id = {number: piece for piece, number in tokenizer.get_vocab(True).items()}
    return [by_id.get(number, "") for number in range(max(by_id) + 1)]


def special_ids(tokenizer: Tokenizer, specials: Specials) -> dict[str, int]:
    """Return the ids of pad, unk, cls, sep and mask, in this order."""
    vocabulary = tokenizer.get_vocab(True)
    return {role: vocabulary[name] for role, name in asdict(specials).items()}


def write_folder(
    out: Path, tokenizer: Tokenizer, specials: Specials, sentencepiece_model: bytes | None
) -> None:
    """Write the files that `AutoTokenizer` and other tools read, each atomically."""
    stated = json.loads(tokenizer.to_str())
    kind = KINDS[stated["model"]["type"]]
    config = {
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        **specials.as_tokens(),
        **_class_settings(stated),
    }
    about = {
        "kind": kind,
        "vocab_size": len(pieces_of(tokenizer)),
        "special_ids": special_ids(tokenizer, specials),
    }
    write_atomically(out / "tokenizer.json", tokenizer.to_str(pretty=True))
    write_atomically(out / "tokenizer_config.json", _json(config))
    write_atomically(out / "special_tokens_map.json", _json(specials.as_tokens()))
    write_atomically(out / "sesame.json", _json(about))
    if kind == "wordpiece":
        write_atomically(out / "vocab.txt", "\n".join([*pieces_of(tokenizer), ""]))
    if sentencepiece_model is not None:
        write_atomically(out / "spiece.model", sentencepiece_model)


def _class_settings(stated: dict[str, Any]) -> dict[str, Any]:
    """Return the settings for transformers: its BERT class if that gives the same tokens."""
    normaliser = stated["normalizer"] or {}
    is_bert = (
        stated["model"]["type"] == "WordPiece"
        and normaliser.get("type") == "BertNormalizer"
        and (stated["pre_tokenizer"] or {}).get("type") == "BertPreTokenizer"
    )
    if not is_bert:
        return {"tokenizer_class": "PreTrainedTokenizerFast"}
    return {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": normaliser["lowercase"],
        "strip_accents": normaliser["strip_accents"],
        "tokenize_chinese_chars": normaliser["handle_chinese_chars"],
    }


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True) + "\n"
