"""Raw text made clean: characters repaired and normalised, white space put in order, filters.

Clean text is NFC without control characters; lines have single spaces and no margins; paragraphs
are parted by one blank line. Most text needs none of the repairs, so each has a cheap test first.
"""

import re
import unicodedata
from collections import Counter

import ftfy
from ftfy.chardata import CHARMAP_ENCODINGS
from ftfy.fixes import unescape_html

from data_prep.config import CorpusConfig

HTML_BREAK = re.compile(r"<(?:[bB][rR]|/?[pP])\s*/?>")
LINE_BREAK = re.compile("\r\n?|[\v\f\x85\u2028\u2029]")
# Controls, the byte order mark, soft hyphens, non-characters.
INVISIBLE = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\xad\ufeff\ufff9-\ufffb\ufffe\uffff]")
LONE_SURROGATE = re.compile("[\ud800-\udfff]")  # "\ud83d" alone in JSON; UTF-8 cannot write it
ODD_SPACE = re.compile("[\t\xa0\u1680\u2000-\u200a\u202f\u205f\u3000]")
BLANK_LINES = re.compile(r"\n{3,}")
ASCII_LETTERS = bytes(range(ord("A"), ord("Z") + 1)) + bytes(range(ord("a"), ord("z") + 1))


def _suspect_pattern() -> re.Pattern[str]:
    """What wrongly decoded UTF-8 or Windows-1252 leaves in a line, in whatever encoding.

    ftfy's own test reads 3 MB/s; this one finds the few lines that are worth it. A sequence has
    a first byte C2-F4 and a next one 80-BF; a no-break space there is often a plain space by now;
    and 80-9F alone are Windows' dashes and quotes read as Latin-1.
    """
    first = "".join(bytes(range(0xC2, 0xF5)).decode(code, "ignore") for code in CHARMAP_ENCODINGS)
    next_ = "".join(bytes(range(0x80, 0xC0)).decode(code, "ignore") for code in CHARMAP_ENCODINGS)
    first, next_ = ("".join(sorted(set(characters))) for characters in (first, next_))
    return re.compile(
        f"[{re.escape(first)}\x80-\x9f](?:[{re.escape(next_)}]|(?<=[ÂÃÅÎÐÙâã]) |(?<=[\x80-\x9f]))"
    )


SUSPECT = _suspect_pattern()


def clean_text(text: str, repaired: Counter[str]) -> str:
    """The clean form of a document's text; `repaired` counts what had to be mended."""
    if "<" in text:
        text = HTML_BREAK.sub("\n\n", text)
    if "&" in text and "<" not in text:  # with tags it is source code, whose entities are meant
        text = unescape_html(text)
    if not text.isascii():
        text = unicodedata.normalize("NFC", _repair_encoding(text, repaired))
    if not text.replace("\n", " ").isprintable():  # controls, or spaces other than U+0020
        text = ODD_SPACE.sub(" ", _repair_characters(text, repaired))
    if any(mark in text for mark in ("  ", " \n", "\n ")):
        text = "\n".join([" ".join(line.split()) for line in text.split("\n")])
    return (BLANK_LINES.sub("\n\n", text) if "\n\n\n" in text else text).strip()


def _repair_encoding(text: str, repaired: Counter[str]) -> str:
    if not SUSPECT.search(text):
        return text
    lines = text.split("\n")
    mended = [ftfy.fix_encoding(line) if SUSPECT.search(line) else line for line in lines]
    if mended != lines:
        repaired["encoding"] += 1
    return "\n".join(mended)


def _repair_characters(text: str, repaired: Counter[str]) -> str:
    text = LINE_BREAK.sub("\n", text)
    if INVISIBLE.search(text):
        text = INVISIBLE.sub("", text)
        repaired["control_characters"] += 1
    if LONE_SURROGATE.search(text):
        text = LONE_SURROGATE.sub("\ufffd", text)
        repaired["lone_surrogates"] += 1
    return text


def letter_share(text: str) -> float:
    """The share of letters among a text's characters."""
    if not text:
        return 0.0
    data = text.encode()
    others = data.translate(None, ASCII_LETTERS)
    letters = len(data) - len(others)
    if not text.isascii():
        letters += sum(map(str.isalpha, others.decode()))
    return letters / len(text)


def reason_to_drop(text: str, config: CorpusConfig) -> str | None:
    """The name of the first filter that refuses a clean text, if one does."""
    if not text:
        return "empty"
    if len(text) < config.min_characters:
        return "min_characters"
    if config.min_letters and letter_share(text) < config.min_letters:
        return "min_letters"
    return None
