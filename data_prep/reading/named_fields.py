"""Count which configured fields the records have, and remember the names of other fields.

Records of .jsonl, .csv, .tsv and .parquet files have named fields. Messages about a wrong key list
the names that were found. Only names are kept, never values.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from data_prep.config import DEFAULT_ID_FIELD, CorpusConfig

MOST_NAMES = 20  # most names remembered: a file may use data as keys
NAME = re.compile(r"[^\W\d][\w.-]{0,39}")


@dataclass
class FieldsSeen:
    """Counts of records by configured field, and field names of records that lack one."""

    records: int = 0
    present: Counter[str] = field(default_factory=Counter)
    names: dict[str, None] = field(default_factory=dict)  # in the order they were found

    def see(self, names: Collection[str], wanted: Sequence[str]) -> None:
        """Count the wanted fields of a record; remember its field names if one is absent."""
        self.records += 1
        found = [name for name in wanted if name in names]
        self.present.update(found)
        if len(found) < len(wanted):
            self.remember(names)

    def remember(self, names: Iterable[str]) -> None:
        """Keep field names for messages, at most MOST_NAMES."""
        for name in names:
            if len(self.names) >= MOST_NAMES:
                return
            self.names.setdefault(name)

    def add(self, other: "FieldsSeen") -> None:
        """Add the counts of the next work unit."""
        self.records += other.records
        self.present.update(other.present)
        self.remember(other.names)

    def as_json(self) -> dict[str, Any]:
        """Return plain values, to be stored with a work unit."""
        return {
            "records": self.records,
            "present": dict(sorted(self.present.items())),
            "names": list(self.names),
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "FieldsSeen":
        """Build the counts from the values of `as_json`."""
        return cls(values["records"], Counter(values["present"]), dict.fromkeys(values["names"]))


def wanted_fields(config: CorpusConfig) -> list[str]:
    """Return the fields that the config requires; the default id field is optional."""
    own_id = [config.id_field] if config.id_field != DEFAULT_ID_FIELD else []
    group = [config.group_field] if config.group_field is not None else []
    return [config.text_field, *own_id, *group, *config.where]


def list_names(names: Collection[str]) -> str:
    """Format field names for a message.

    A name that does not look like one may be private text, so it is only counted.
    """
    shown = [name for name in names if NAME.fullmatch(name)]
    others = len(names) - len(shown)
    if others:
        shown.append(f"{others} that do not look like names")
    return ", ".join(shown) or "none"
