"""Which of the configured fields records have, and which fields there are instead.

Records of .jsonl, .csv, .tsv and .parquet files have named fields. Only names are kept, never
values: messages about a wrong key say what was found.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from data_prep.config import DEFAULT_ID_FIELD, CorpusConfig

MOST_NAMES = 20  # remembered; a file whose keys are data must not fill memory or a message
NAME = re.compile(r"[^\W\d][\w.-]{0,39}")


@dataclass
class FieldsSeen:
    """Counts of records by configured field, and the names in records that lack one."""

    records: int = 0
    present: Counter[str] = field(default_factory=Counter)
    names: dict[str, None] = field(default_factory=dict)  # in the order they were found

    def see(self, names: Collection[str], wanted: Sequence[str]) -> None:
        """Count a record by the wanted fields it has; remember its names where one is absent."""
        self.records += 1
        found = [name for name in wanted if name in names]
        self.present.update(found)
        if len(found) < len(wanted):
            self.remember(names)

    def remember(self, names: Iterable[str]) -> None:
        """Keep the names of fields for messages, as many as a message may hold."""
        for name in names:
            if len(self.names) >= MOST_NAMES:
                return
            self.names.setdefault(name)

    def add(self, other: "FieldsSeen") -> None:
        """Take in what was seen of the next piece."""
        self.records += other.records
        self.present.update(other.present)
        self.remember(other.names)

    def as_json(self) -> dict[str, Any]:
        """Plain values, to be stored with a piece."""
        return {
            "records": self.records,
            "present": dict(sorted(self.present.items())),
            "names": list(self.names),
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "FieldsSeen":
        """The inverse of `as_json`."""
        return cls(values["records"], Counter(values["present"]), dict.fromkeys(values["names"]))


def wanted_fields(config: CorpusConfig) -> list[str]:
    """The fields that the configuration counts on; `id` is taken where there is one."""
    own_id = [config.id_field] if config.id_field != DEFAULT_ID_FIELD else []
    group = [config.group_field] if config.group_field is not None else []
    return [config.text_field, *own_id, *group, *config.where]


def list_names(names: Collection[str]) -> str:
    """Names of fields for a message; what does not look like a name may be text, and is counted."""
    shown = [name for name in names if NAME.fullmatch(name)]
    others = len(names) - len(shown)
    if others:
        shown.append(f"{others} that do not look like names")
    return ", ".join(shown) or "none"
