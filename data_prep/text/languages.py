"""Identify the language of a text, offline: by its script, its letters and its commonest words.

Scripts of one language decide by themselves. Languages that share Cyrillic or Arabic letters differ
in a few letters. Latin text is decided by function words: in any language they are a third or more
of all words. Short or mixed text is `und` (undetermined, ISO 639).
"""

import re
import string
import struct

ASCII_LETTERS = string.ascii_letters.encode()
READ_CHARACTERS = 800
LEAST_HITS = 3  # function words
LEAST_SHARE = 0.1  # function words of all words
LEAD = 1.15  # the best language has at least this many times the hits of the second

UNDETERMINED = "und"
LATIN, HAN, KANA, CYRILLIC, ARABIC = "latin", "han", "kana", "cyrillic", "arabic"
SCRIPTS = {
    LATIN: "A-Za-z\u00c0-\u024f\u1e00-\u1eff",
    HAN: "\u3400-\u4dbf\u4e00-\u9fff",
    KANA: "\u3040-\u30ff",
    CYRILLIC: "\u0400-\u052f",
    ARABIC: "\u0600-\u06ff",
    "am": "\u1200-\u137f", "bn": "\u0980-\u09ff", "el": "\u0370-\u03ff", "he": "\u0590-\u05ff",
    "hi": "\u0900-\u097f", "hy": "\u0530-\u058f", "ka": "\u10a0-\u10ff", "km": "\u1780-\u17ff",
    "ko": "\u1100-\u11ff\uac00-\ud7af", "lo": "\u0e80-\u0eff", "my": "\u1000-\u109f",
    "ta": "\u0b80-\u0bff", "te": "\u0c00-\u0c7f", "th": "\u0e00-\u0e7f",
}  # fmt: skip
# Removes all letters of a script, so that they can be counted at the speed of `re.sub`.
LETTERS = {name: re.compile(f"[{letters}]+") for name, letters in SCRIPTS.items()}

FUNCTION_WORDS = {
    "cs": "a v se na je že s z do to i o ale jak jsem si by za po jeho tak jako jsou nebo byl při",
    "da": "og i at det er en til af på for med der de den ikke som har et var jeg blev efter sig",
    "de": "der die und in den von zu das mit sich des auf für ist im dem nicht ein eine als auch",
    "en": "the of and to in a is that it was for on with as he be at by this had not are but from",
    "es": "de la que el en y a los se del las un por con no una su para es al lo como más pero sus",
    "et": "ja on ei et see ta oli kui ka ning mis oma aga siis ma nii selle või kes tema",
    "fi": "ja on ei että se oli hän mutta kun niin myös joka ovat kuin ole hänen sen mitä tai",
    "fr": "de la le et les des en un du une que est pour qui dans a par plus pas au sur ne se ce",
    "hr": "je i u na da se za su od s a što kao koji ne o iz ali to bi sam po kako ili nije bio",
    "hu": "a az és hogy nem is egy ez volt meg csak már de mint ha még vagy azt el fel lesz van",
    "it": "di che e la il un a per in una mi sono ho non ma lo ha le si ti i con cosa se da come",
    "lt": "ir kad į iš su yra tai bet o ne buvo jo kaip tik ar jis po savo ji už nuo dar jų",
    "nl": "de het een en van ik te dat die in is niet je op zijn voor met als ook maar aan er om",
    "no": "og i det er på som en til å av for at med de ikke den har jeg om et var ble etter seg",
    "pl": "w i na nie się z do to że jest a o jak ale po co za od tak jego był przez są już dla",
    "pt": "de a o que e do da em um para com não uma os no se na por mais as dos como mas ao ele",
    "ro": "de și în a la cu nu pe o să că un din mai este care pentru s-a ca sau fost dar au lui",
    "sv": "och i att det som en på är av för med den till inte har de ett om han men var jag sig",
    "tr": "ve bir bu da de için ne o çok ben gibi daha ama var mi ile kadar değil sonra her olan",
    "vi": "là và của có không được cho trong người một những tôi với các này đã đó khi để thì",
}
CYRILLIC_LETTERS = {"uk": "іїєґ", "ru": "ыэё", "bg": "ъ", "sr": "љњћђџј"}
ARABIC_LETTERS = {"ur": "ٹڈےںھ", "fa": "پچژگی"}

# Each function word as one integer with a 16-bit counter per language, so that adding up the
# integers of a text's words counts its function words in all languages at once.
_LATIN_LANGUAGES = sorted(FUNCTION_WORDS)
_COUNTERS = f"<{len(_LATIN_LANGUAGES)}H"
_WORDS: dict[str, int] = {}
for _place, _language in enumerate(_LATIN_LANGUAGES):
    for _word in set(FUNCTION_WORDS[_language].split()):
        _WORDS[_word] = _WORDS.get(_word, 0) + (1 << 16 * _place)


def identify(text: str) -> str:
    """Return the ISO 639-1 code of a text's language, from its beginning, or `und`."""
    text = text[:READ_CHARACTERS]
    if text.isascii() or _is_mostly_ascii(text):
        return _latin_language(text)
    others = LETTERS[LATIN].sub("", text)
    if len(text) - len(others) >= sum(map(str.isalpha, others)):
        return _latin_language(text)
    counts = {name: _count(letters, others) for name, letters in LETTERS.items()}
    if counts[KANA] * 10 > counts[HAN] and counts[KANA]:
        counts[HAN] = 0
    script = max(counts, key=lambda name: counts[name])
    if counts[script] == 0:
        return UNDETERMINED
    if script == CYRILLIC:
        return _by_letters(text.lower(), CYRILLIC_LETTERS, "ru")
    if script == ARABIC:
        return _by_letters(text, ARABIC_LETTERS, "ar")
    return {HAN: "zh", KANA: "ja"}.get(script, script)


def _is_mostly_ascii(text: str) -> bool:
    """Return True if ASCII letters are at least as many as all other letters can be."""
    plain = text.encode("ascii", "ignore")
    letters = len(plain) - len(plain.translate(None, ASCII_LETTERS))
    return letters >= len(text) - len(plain)


def _count(letters: re.Pattern[str], text: str) -> int:
    return len(text) - len(letters.sub("", text))


def _latin_language(text: str) -> str:
    words = text.lower().split()  # marks are left on words: few of them follow a function word
    total = sum(map(_WORDS.__getitem__, filter(_WORDS.__contains__, words)))
    hits = struct.unpack(_COUNTERS, total.to_bytes(struct.calcsize(_COUNTERS), "little"))
    second, most = sorted(hits)[-2:]
    is_clear = most >= LEAST_HITS and most >= LEAST_SHARE * len(words) and most > LEAD * second
    return _LATIN_LANGUAGES[hits.index(most)] if is_clear else UNDETERMINED


def _by_letters(text: str, letters: dict[str, str], default: str) -> str:
    """Return the language whose own letters occur most, or the default."""
    counts = {language: sum(map(text.count, own)) for language, own in letters.items()}
    best = max(counts, key=lambda language: counts[language])
    return best if counts[best] * 100 > len(text) else default


KNOWN = frozenset(
    {*FUNCTION_WORDS, *CYRILLIC_LETTERS, *ARABIC_LETTERS, "ar", "zh", "ja"}
    | (SCRIPTS.keys() - {LATIN, HAN, KANA, CYRILLIC, ARABIC})
)
