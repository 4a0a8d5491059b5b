"""`sesame inspect unread`: list every file below the corpus paths that is not read, and why.

Reads nothing but the folders; writes to the terminal only.
Try it: sesame inspect unread corpus.paths=texts
"""

from data_prep.reading.sources import UNREAD, survey
from pipeline.config.compose import compose_config


def inspect_unread(overrides: list[str]) -> None:
    """Print one line per file, sorted by reason and name, and the numbers of both kinds."""
    corpus = compose_config(overrides).corpus
    found = survey(corpus.paths, corpus.sources)
    reasons = list(UNREAD)
    for name, reason in sorted(
        found.unread.items(), key=lambda item: (reasons.index(item[1]), item)
    ):
        print(f"{reason}\t{name}")
    for reason in sorted(set(found.unread.values()), key=reasons.index):
        print(f"# {reason}: {UNREAD[reason]}")
    print(f"# {len(found.files):,} files are read, {len(found.unread):,} are not")
