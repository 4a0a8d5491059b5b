"""Tables that divide figures by source and by language, where the corpus has several."""

from collections.abc import Iterator, Mapping
from typing import Any

from pipeline.pages.blocks import Column, Table
from pipeline.pages.wording import count, plain, share

DIVISIONS = {"by_source": "source", "by_language": "language"}


def document_tables(counts: dict[str, Any], reasons: Mapping[str, str]) -> Iterator[Table]:
    """Yield tables of documents read, kept and dropped, from the counts of `shard`."""
    for key, by in DIVISIONS.items():
        if key not in counts:
            continue
        columns = (
            Column(by),
            *(Column(name, True) for name in ("read", "kept", "share kept")),
            Column("dropped"),
        )
        rows = [
            [
                name,
                count(each["read"]),
                count(each["kept"]),
                share(each["kept"], each["read"]),
                ", ".join(
                    f"{reasons.get(reason, plain(reason))} {count(number)}"
                    for reason, number in _most_first(each["dropped"])
                ),
            ]
            for name, each in _largest_first(counts[key], "read")
        ]
        yield Table(f"Documents by {by}", columns, rows)


def vocabulary_tables(counts: dict[str, Any]) -> Iterator[Table]:
    """Yield tables of how the vocabulary fits held-out text, from the counts of `tokenizer`."""
    held_out = counts.get("heldout", {})
    for key, by in DIVISIONS.items():
        if key not in held_out:
            continue
        names = ("words held out", "pieces per word", "unknown pieces", "characters covered")
        columns = (Column(by), *(Column(name, True) for name in names))
        rows = [
            [
                name,
                count(each["words"]),
                _shown(each["fertility"], "{:.2f}".format),
                _shown(each["unknown_rate"], share),
                _shown(each["coverage"], share),
            ]
            for name, each in _largest_first(held_out[key], "words")
        ]
        yield Table(f"Fit of the vocabulary by {by}", columns, rows)


def loss_tables(losses: Mapping[str, Mapping[str, float]], title: str) -> Iterator[Table]:
    """Yield tables of the held-out loss at the end, from the counts of `pretrain`."""
    for key, by in DIVISIONS.items():
        if key in losses:
            rows = [[name, f"{loss:.3f}"] for name, loss in sorted(losses[key].items())]
            columns = (Column(by), Column("loss", True))
            yield Table(f"Held-out loss by {by}{title}", columns, rows)


def _shown(value: float | None, form: Any) -> str:
    return "" if value is None else str(form(value))


def _most_first(reasons: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(reasons.items(), key=lambda item: (-item[1], item[0]))


def _largest_first(strata: Mapping[str, Any], size: str) -> list[tuple[str, Any]]:
    return sorted(strata.items(), key=lambda item: (-item[1][size], item[0]))
