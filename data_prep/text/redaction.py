"""Replace personal data in clean text with typed symbols such as [EMAIL] (`corpus.redact`).

The patterns prefer a number too many to an address too few: every number of nine digits becomes
[ID]. Names come from the user's file (`corpus.redact_names_file`), other patterns from
`corpus.redact_patterns`. Every pattern takes linear time: ours match bounded lengths, or start
where a run of characters starts and give nothing back; the user's are compiled by RE2.
Try it: sesame shard corpus.paths=mail.jsonl 'corpus.redact=[email, phone, id, ip]'
"""

import hashlib
import ipaddress
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from data_prep.config import CorpusConfig
from data_prep.errors import UsageError
from data_prep.symbols import NAME_SYMBOL, compile_redaction, symbol_of
from data_prep.text.scripts import SPACELESS

LETTER = rf"[^\W_{SPACELESS}]"  # a letter or digit of a script with spaces
HYPHENS = r"\-\u2010-\u2013"
BETWEEN = rf"[ ()./{HYPHENS}]"  # between the digits of a telephone number

EMAIL = re.compile(
    rf"(?<![^\W{SPACELESS}])(?<![.%+'-])(?:{LETTER}|[._%+-]|(?<=\w)'(?=\w))++@"
    rf"(?:{LETTER}|-)++(?:\.(?:{LETTER}|-)++)++"
)
OCTET = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
IPV4 = re.compile(rf"(?<![\w.]){OCTET}(?:\.{OCTET}){{3}}(?![\w]|\.\d)")
IPV6 = re.compile(r"(?<![\w:.])[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?![\w:])")
# Numbers that a state or bank gives to a person, in their written forms.
ISSUED = re.compile(
    rf"(?<![\w{HYPHENS}])(?:"
    r"\d{3}[-\u2011]\d{2}[-\u2011]\d{4}"  # United States
    r"|(?:\d{2})?\d{6}[-\u2011+]\d{4}"  # Sweden, Denmark
    r"|\d{6}[-\u2011+A]\d{3}[0-9A-Y]"  # Finland
    r"|\d{6} \d{5}"  # Norway
    r"|[A-Z]{2} ?\d{2} ?\d{2} ?\d{2} ?[A-D]"  # United Kingdom
    r"|[A-Z]{1,2}\d{7,9}"  # passports
    r"|\d{4}(?:[ -]\d{4}){3}|\d{4}[ -]\d{6}[ -]\d{5}"  # payment cards
    r"|[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?"  # bank accounts (IBAN)
    r")(?!\w)"
)
PHONE = re.compile(
    rf"(?<![\w+])(?:\+|00)[1-9](?:{BETWEEN}{{0,3}}\d){{6,14}}(?!\d)"  # international
    # With an area code that starts with 0; not a date such as 01.02.2020, nor a number 0.1234567.
    rf"|(?<![\w.,+/{HYPHENS}])(?!\d\d?[./-]\d\d?[./-]\d{{2,4}}(?!\d))"
    rf"\(?0[1-9](?:{BETWEEN}{{0,2}}\d){{6,10}}(?!\d)"
    # North American: 555-123-4567.
    rf"|(?<![\w.,{HYPHENS}])(?:1[-. ])?\(?[2-9]\d{{2}}\)?[-. ]{{1,2}}\d{{3}}[-. ]\d{{4}}(?![-.]?\d)"
)
LONG_NUMBER = re.compile(r"(?<!\w)(?<!\d[.,])\d{9,}+(?!\w)")
# In this order: a later rule sees the symbols of the earlier ones, which have no digits.
NUMBER_RULES = (("ip", IPV4), ("id", ISSUED), ("phone", PHONE), ("id", LONG_NUMBER))
DIGITS = re.compile(r"\d(?:[^\d\n]{0,3}\d){3}")  # a line without this has no such number
COLONS = re.compile(r":[0-9A-Fa-f]{0,4}:")

WORD = re.compile(rf"[{SPACELESS}]|{LETTER}++")
# Between the words of a name. Characters of scripts without spaces follow each other directly.
NAME_GAPS = ("", " ", "\n", "-", "'", "’", ".", ". ")


@cache
def _read_names(file: str) -> "Names":
    try:
        lines = Path(file).expanduser().read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"corpus.redact_names_file={file}: cannot be read ({type(error).__name__}); "
            "give a UTF-8 file with one name per line"
        ) from error
    return Names(lines)


class Names:
    """A list of names, found in a text by looking up each word.

    A name is found as it is listed, in capitals, and with a genitive s. It costs one look-up per
    word of the text, however long the list is.
    """

    def __init__(self, lines: Sequence[str]):
        self._names: set[tuple[str, ...]] = set()
        lengths: defaultdict[str, set[int]] = defaultdict(set)
        for line in lines:
            listed = unicodedata.normalize("NFC", line)
            for form in (listed, listed.upper()):
                words = tuple(WORD.findall(form))
                for ending in ("s", "S") if words else ():
                    genitive = (*words[:-1], words[-1] + ending)
                    self._names |= {words, genitive}
                    lengths[words[0]].add(len(words))
                    lengths[genitive[0]].add(len(words))
        self._lengths = {word: sorted(own, reverse=True) for word, own in lengths.items()}

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield start and end of each name in a text; the longest where several begin."""
        found = list(WORD.finditer(text))
        words = [match[0] for match in found]
        place = 0
        while place < len(words):
            lengths = self._lengths.get(words[place], ())
            taken = next((n for n in lengths if self._is_name(text, found, words, place, n)), 0)
            if taken:
                yield found[place].start(), found[place + taken - 1].end()
            place += max(taken, 1)

    def _is_name(
        self, text: str, found: list[re.Match[str]], words: list[str], place: int, length: int
    ) -> bool:
        own = found[place : place + length]
        return tuple(words[place : place + length]) in self._names and all(
            text[left.end() : right.start()] in NAME_GAPS for left, right in pairwise(own)
        )


@dataclass(frozen=True)
class Redactor:
    """Replaces what the config names; counts the replacements per symbol, without brackets."""

    kinds: frozenset[str]
    patterns: Mapping[str, Any]  # compiled by RE2, by symbol
    names: Names | None

    @classmethod
    def of(cls, config: CorpusConfig) -> "Redactor | None":
        """Return the redactor of a config; None if it redacts nothing."""
        if not config.redaction_symbols:
            return None
        file = config.redact_names_file
        return cls(
            frozenset(config.redact),
            {
                symbol_of(name): compile_redaction(name, pattern)
                for name, pattern in config.redact_patterns.items()
            },
            None if file is None else _read_names(file),
        )

    def redact(self, text: str, counts: Counter[str]) -> str:
        """Return the text with symbols; count them in `counts`, in place."""
        for symbol, pattern in self.patterns.items():
            text, found = pattern.subn(symbol, text)
            counts[symbol[1:-1]] += found
        if "email" in self.kinds and "@" in text:
            text, found = EMAIL.subn(symbol_of("email"), text)
            counts["EMAIL"] += found
        if self.kinds & {"ip", "id", "phone"} and (DIGITS.search(text) or COLONS.search(text)):
            text = "\n".join([self._redact_numbers(line, counts) for line in text.split("\n")])
        if self.names is not None:
            text = self._redact_names(text, self.names, counts)
        return text

    def redact_label(self, label: str) -> str:
        """Return an id or the name of a group; if it has personal data, a hash instead.

        The hash keeps different labels different. It is a pseudonym: who knows the label can
        compute it.
        """
        found = Counter[str]()
        self.redact(label, found)
        symbols = sorted(+found)
        if not symbols:
            return label
        hashed = hashlib.blake2b(label.encode(errors="replace"), digest_size=8).hexdigest()
        return f"[{symbols[0]}]{hashed}"

    def _redact_numbers(self, line: str, counts: Counter[str]) -> str:
        if "ip" in self.kinds and COLONS.search(line):
            line = IPV6.sub(lambda match: _ip_symbol(match[0], counts), line)
        if not DIGITS.search(line):
            return line
        for kind, pattern in NUMBER_RULES:
            if kind in self.kinds:
                line, found = pattern.subn(symbol_of(kind), line)
                counts[kind.upper()] += found
        return line

    def _redact_names(self, text: str, names: Names, counts: Counter[str]) -> str:
        parts, done = [], 0
        for start, end in names.spans(text):
            if text[start - 1 : start] == "[" and text[end : end + 1] == "]":
                continue  # a symbol, such as [ID], may look like a name in capitals
            parts += [text[done:start], NAME_SYMBOL]
            done = end
            counts["NAME"] += 1
        return "".join([*parts, text[done:]])


def _ip_symbol(found: str, counts: Counter[str]) -> str:
    """Return [IP] for an address, and the text itself otherwise: 12:30:45, a::b."""
    try:
        ipaddress.IPv6Address(found)
    except ValueError:
        return found
    if not any(map(str.isdigit, found)):
        return found
    counts["IP"] += 1
    return symbol_of("ip")
