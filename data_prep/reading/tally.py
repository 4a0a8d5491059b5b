"""Count the documents of a corpus: read = kept + dropped, with the reason of each drop.

Notes on damage have the file, the byte or row, and the reason, never the text itself.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from data_prep.errors import SesameError
from data_prep.reading.named_fields import FieldsSeen

READ = "read"  # the key of all documents among counts by reason
NOTES = 20  # most notes kept for the log; the counters count all damage


@dataclass
class Tally:
    """Counters of one work unit or of the whole corpus.

    With `strict`, the methods that note damage raise SesameError.
    """

    strict: bool = False
    read: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    repaired: Counter[str] = field(default_factory=Counter)
    redacted: Counter[str] = field(default_factory=Counter)  # replacements by symbol
    languages: Counter[str] = field(default_factory=Counter)  # kept documents, if identified
    # By source and by language: documents read, and dropped by reason.
    by_source: dict[str, Counter[str]] = field(default_factory=dict)
    by_language: dict[str, Counter[str]] = field(default_factory=dict)
    broken_files: int = 0
    notes: list[tuple[str, str, str]] = field(default_factory=list)  # file, byte or row, reason
    fields: FieldsSeen = field(default_factory=FieldsSeen)

    @property
    def kept(self) -> int:
        """The number of documents read and not dropped."""
        return self.read - self.dropped.total()

    def drop_damaged(self, reason: str, file: str, offset: int, unit: str = "byte") -> None:
        """Count a document that cannot be read and is dropped."""
        self.dropped[reason] += 1
        self._note(file, f"{unit} {offset}", f"{reason}, document dropped")

    def repair_damaged(self, reason: str, file: str, offset: int, unit: str = "byte") -> None:
        """Count a document that was damaged and has been repaired."""
        self.repaired[reason] += 1
        self._note(file, f"{unit} {offset}", f"{reason}, repaired")

    def break_off(self, reason: str, file: str, offset: int, unit: str = "byte") -> None:
        """Count a file, or one stream of it, that cannot be read past `offset`."""
        self.broken_files += 1
        self._note(file, f"{unit} {offset}", f"{reason}, what follows is lost")

    def _note(self, file: str, place: str, reason: str) -> None:
        if len(self.notes) < NOTES:
            self.notes.append((file, place, reason))
        self.check_strict()

    def check_strict(self) -> None:
        """Raise SesameError if `strict` is set and damage was noted."""
        if self.strict and self.notes:
            file, place, reason = self.notes[0]
            raise SesameError(
                f"{file}, {place}: {reason}; corpus.strict=true stops here: "
                "repair the file, or set corpus.strict=false"
            )

    def add(self, other: "Tally") -> None:
        """Add the counts of the next work unit, in corpus order."""
        self.read += other.read
        self.dropped.update(other.dropped)
        self.repaired.update(other.repaired)
        self.redacted.update(other.redacted)
        self.languages.update(other.languages)
        for own, more in ((self.by_source, other.by_source), (self.by_language, other.by_language)):
            for name, counts in more.items():
                own.setdefault(name, Counter()).update(counts)
        self.broken_files += other.broken_files
        self.notes.extend(other.notes[: NOTES - len(self.notes)])
        self.fields.add(other.fields)

    def as_json(self) -> dict[str, Any]:
        """Return plain, sorted values, to be stored with a work unit."""
        return {
            "read": self.read,
            "dropped": dict(sorted(self.dropped.items())),
            "repaired": dict(sorted(self.repaired.items())),
            "redacted": dict(sorted((+self.redacted).items())),
            "languages": dict(sorted(self.languages.items())),
            "by_source": _sorted(self.by_source),
            "by_language": _sorted(self.by_language),
            "broken_files": self.broken_files,
            "notes": [list(note) for note in self.notes],
            "fields": self.fields.as_json(),
        }

    @classmethod
    def from_json(cls, values: dict[str, Any], strict: bool = False) -> "Tally":
        """Build a tally from the values of `as_json`."""
        return cls(
            strict=strict,
            read=values["read"],
            dropped=Counter(values["dropped"]),
            repaired=Counter(values["repaired"]),
            redacted=Counter(values.get("redacted", {})),  # cached units may be older
            languages=Counter(values["languages"]),
            by_source={name: Counter(counts) for name, counts in values["by_source"].items()},
            by_language={name: Counter(counts) for name, counts in values["by_language"].items()},
            broken_files=values["broken_files"],
            notes=[(file, place, reason) for file, place, reason in values["notes"]],
            fields=FieldsSeen.from_json(values["fields"]),
        )


def _sorted(strata: dict[str, Counter[str]]) -> dict[str, dict[str, int]]:
    return {name: dict(sorted(counts.items())) for name, counts in sorted(strata.items())}
