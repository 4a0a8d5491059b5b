"""The normalisers of tokenizers, as stored in `tokenizer.json`; text is normalised only once.

WordPiece uses BERT's normaliser. The SentencePiece kinds use NFC and single spaces; SentencePiece
itself is configured to change nothing.
"""

from tokenizers import Regex, normalizers
from tokenizers.normalizers import Normalizer


def bert_normaliser(lowercase: bool, strip_accents: bool) -> Normalizer:
    """Return BERT's normaliser: drops control characters, puts spaces around Chinese characters."""
    # `strip_accents` is always given: if it is None, the library derives it from `lowercase`.
    return normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=True,
        strip_accents=strip_accents,
        lowercase=lowercase,
    )


def sentencepiece_normaliser(
    lowercase: bool, strip_accents: bool, charsmap: bytes = b""
) -> Normalizer:
    """Return a normaliser to NFC and single spaces; the space mark ▁ counts as a space.

    charsmap: the character map of an existing SentencePiece model; it replaces NFC.
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
        # Not Strip(), which also removes characters that the line above does not treat as space.
        normalizers.Replace(Regex(r"^ | $"), ""),
    ]
    return normalizers.Sequence(steps)
