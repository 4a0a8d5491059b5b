"""Choose the fine-tuning that stands for its task where a page shows only one.

The choice goes by the development score. A choice by test score would show the luckiest seed.
"""

from pipeline.report.collect import Collected, FinishedOutput
from pipeline.tasks.config import RANDOM


def chosen_finetunings(collected: Collected) -> dict[str, FinishedOutput]:
    """Return the trained fine-tuning with the best development score, by task."""
    chosen: dict[str, FinishedOutput] = {}
    for made in collected.of("finetune"):
        if made.counts["encoder"] == RANDOM or "dev_score" not in made.counts:
            continue
        rival = chosen.setdefault(made.counts["task"], made)
        if made.counts["dev_score"] > rival.counts["dev_score"]:
            chosen[made.counts["task"]] = made
    return chosen
