"""Clean raw text: repair and normalise characters, white space and line breaks.

Clean text is NFC without control characters. Lines have single spaces and none at either end; one
blank line separates paragraphs. Most text needs no repair, so each repair starts with a cheap test.
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
# Control characters, the byte order mark, soft hyphens, non-characters.
INVISIBLE = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\xad\ufeff\ufff9-\ufffb\ufffe\uffff]")
LONE_SURROGATE = re.compile("[\ud800-\udfff]")  # such as "\ud83d" in JSON; not valid in UTF-8
ODD_SPACE = re.compile("[\t\xa0\u1680\u2000-\u200a\u202f\u205f\u3000]")
BLANK_LINES = re.compile(r"\n{3,}")
# A word that ends with a hyphen at a line end, and the rest of it. It starts where letters start
# and gives none back, so that long words cost linear time.
BROKEN_WORD = re.compile(
    r"(?<![^\W\d_])([^\W\d_]++)[-\u2010\xac]\n([^\W\d_]++)([^\s]*)(?: |(?=\n)|$)"
)
LETTERS = re.compile(r"[^\W\d_]+")
COMPOUND = re.compile(r"(?<![^\W\d_])([^\W\d_]++)-(?=([^\W\d_]++))")
TAG = re.compile(r"</?[a-zA-Z!][^<>]*>")
BOILERPLATE_CHARACTERS = 20  # shorter lines, such as "Yes." or "* * *", may repeat


def _suspect_pattern() -> re.Pattern[str]:
    """Return a pattern for text that may be UTF-8 or Windows-1252 decoded with a wrong encoding.

    ftfy's own test reads only 3 MB/s, so it is applied only to lines with a match. A UTF-8 sequence
    has a first byte C2-F4 and a second byte 80-BF; a no-break space in second place may have become
    a plain space. 80-9F alone are Windows' dashes and quotes, decoded as Latin-1.
    """
    first = "".join(bytes(range(0xC2, 0xF5)).decode(code, "ignore") for code in CHARMAP_ENCODINGS)
    next_ = "".join(bytes(range(0x80, 0xC0)).decode(code, "ignore") for code in CHARMAP_ENCODINGS)
    first, next_ = ("".join(sorted(set(characters))) for characters in (first, next_))
    return re.compile(
        f"[{re.escape(first)}\x80-\x9f](?:[{re.escape(next_)}]|(?<=[ÂÃÅÎÐÙâã]) |(?<=[\x80-\x9f]))"
    )


SUSPECT = _suspect_pattern()


def clean_document(text: str, config: CorpusConfig, repaired: Counter[str]) -> str:
    """Return a document's clean text, with the line repairs that `config` asks for.

    `repaired` counts the repairs, in place, here and in the functions below.
    """
    text = clean_text(text, repaired)
    if config.join_hyphens:
        text = join_hyphens(text, repaired)
    if config.boilerplate_lines:
        text = drop_boilerplate(text, config.boilerplate_lines, repaired)
    return text


def join_hyphens(text: str, repaired: Counter[str]) -> str:
    """Join words that are hyphenated at a line end and continue in lower case on the next line.

    The hyphen is kept if the text elsewhere has the word with a hyphen, and never without.
    """
    if not BROKEN_WORD.search(text):
        return text
    words = set(LETTERS.findall(text))
    compounds = set(COMPOUND.findall(text))

    def join(match: re.Match[str]) -> str:
        first, rest, marks = match.groups()
        if not rest[0].islower():
            return match[0]
        hyphen = "-" if first + rest not in words and (first, rest) in compounds else ""
        line_break = "\n" if match[0].endswith(" ") else ""
        return f"{first}{hyphen}{rest}{marks}{line_break}"

    joined = BROKEN_WORD.sub(join, text)
    if joined != text:
        repaired["joined_hyphens"] += 1
    return joined


def drop_boilerplate(text: str, often: int, repaired: Counter[str]) -> str:
    """Keep only the first copy of every line that occurs at least `often` times."""
    if text.count("\n") + 1 < often:
        return text
    lines = text.split("\n")
    repeated = {
        line
        for line, count in Counter(lines).items()
        if count >= often and len(line) >= BOILERPLATE_CHARACTERS
    }
    if not repeated:
        return text
    repaired["boilerplate_lines"] += 1
    kept, seen = [], set()
    for line in lines:
        if line not in seen:
            kept.append(line)
        if line in repeated:
            seen.add(line)
    return BLANK_LINES.sub("\n\n", "\n".join(kept)).strip()


def clean_text(text: str, repaired: Counter[str]) -> str:
    """Return the clean form of any text; count the repairs in `repaired`."""
    if "<" in text:
        text = HTML_BREAK.sub("\n\n", text)
    if "&" in text and not TAG.search(text):  # with tags it is source code, which keeps entities
        text = unescape_html(text)
    if not text.isascii():
        text = _repair_encoding(text, repaired)
    if not text.replace("\n", " ").isprintable():  # control characters, spaces other than U+0020
        text = ODD_SPACE.sub(" ", _repair_characters(text, repaired))
    if not text.isascii():  # last, because a removed character may have stood inside a sequence
        text = unicodedata.normalize("NFC", text)
    if "  " in text or " \n" in text or "\n " in text:
        text = "\n".join(
            [
                # Most lines need no repair, and the test costs a third of it.
                " ".join(line.split())
                if "  " in line or line[:1] == " " or line[-1:] == " "
                else line
                for line in text.split("\n")
            ]
        )
    return (BLANK_LINES.sub("\n\n", text) if "\n\n\n" in text else text).strip()


def _repair_encoding(text: str, repaired: Counter[str]) -> str:
    """Repair the lines that have a suspect sequence; the others are copied as they are."""
    parts = []
    copied = 0  # characters of the text that are in `parts`
    while suspect := SUSPECT.search(text, copied):
        start = text.rfind("\n", copied, suspect.start()) + 1 or copied
        end = text.find("\n", suspect.end())
        end = len(text) if end < 0 else end
        parts += [text[copied:start], ftfy.fix_encoding(text[start:end])]
        copied = end
    if not parts:
        return text
    mended = "".join([*parts, text[copied:]])
    if mended != text:
        repaired["encoding"] += 1
    return mended


def _repair_characters(text: str, repaired: Counter[str]) -> str:
    if LINE_BREAK.search(text):
        text = LINE_BREAK.sub("\n", text)
        repaired["line_breaks"] += 1
    if INVISIBLE.search(text):
        text = INVISIBLE.sub("", text)
        repaired["control_characters"] += 1
    if LONE_SURROGATE.search(text):
        text = LONE_SURROGATE.sub("\ufffd", text)
        repaired["lone_surrogates"] += 1
    return text
