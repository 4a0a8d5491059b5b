"""Compare tokenizers in a table, printed at the end of a sweep over tokenizers.

Try it: sesame tokenizer -m tokenizer=unigram,bpe,wordpiece tokenizer.vocab_size=8000,16000
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

FIGURES = {
    "fertility": "fertility",
    "unknown_rate": "unknown",
    "coverage": "coverage",
    "changed_characters": "changed",
}


def vocabulary_table(tokenizers: Sequence[tuple[list[str], Path]]) -> Table:
    """Return a table of how well each tokenizer fits held-out text.

    `tokenizers`: the overrides that made each tokenizer, and its folder.
    """
    shared = set.intersection(*(set(overrides) for overrides, _ in tokenizers))
    table = Table(title="Vocabularies on held-out text", title_justify="left")
    table.add_column("settings")
    for heading in ("pieces", *FIGURES.values()):
        table.add_column(heading, justify="right")
    for overrides, folder in tokenizers:
        statistics = json.loads((folder / "statistics.json").read_text())
        figures = statistics.get("heldout", {})
        shown = [_shown(key, figures.get(key)) for key in FIGURES]
        settings = "\n".join(word for word in overrides if word not in shared)
        table.add_row(escape(settings), f"{statistics['vocab_size']:,}", *shown)
    return table


def _shown(key: str, value: Any) -> str:
    if value is None:  # nothing is held out, or the tokenizer was not trained on this corpus
        return "–"
    return f"{value:.3f}" if key == "fertility" else f"{100 * value:.3f} %"
