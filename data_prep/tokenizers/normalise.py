"""The one normalisation of a tokenizer, as `tokenizer.json` states it; nothing normalises twice.

WordPiece has BERT's own. SentencePiece kinds have composed Unicode (NFC) with white space made
single spaces; SentencePiece itself is told to change nothing.
"""

from tokenizers import Regex, normalizers
from tokenizers.normalizers import Normalizer


def bert_normaliser(lowercase: bool, strip_accents: bool) -> Normalizer:
    """BERT's: control characters dropped, Chinese characters set apart."""
    # `strip_accents` is always given: left out, the library ties it to lower-casing.
    return normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=True,
        strip_accents=strip_accents,
        lowercase=lowercase,
    )


def sentencepiece_normaliser(
    lowercase: bool, strip_accents: bool, charsmap: bytes = b""
) -> Normalizer:
    """Composed characters, single spaces; the space mark of the pieces counts as a space.

    A foreign SentencePiece model brings its own character map, which then replaces NFC.
    """
    steps: list[Normalizer] = [normalizers.Precompiled(charsmap)] if charsmap else []
    if lowercase:
        steps.append(normalizers.Lowercase())
    if strip_accents:
        steps += [normalizers.NFD(), normalizers.StripAccents()]
    if strip_accents or not charsmap:
        steps.append(normalizers.NFC())
    steps += [
        normalizers.Replace(Regex(r"[\s▁]+"), " "),
        # Not Strip(): it takes away characters that are no space to the line above.
        normalizers.Replace(Regex(r"^ | $"), ""),
    ]
    return normalizers.Sequence(steps)
