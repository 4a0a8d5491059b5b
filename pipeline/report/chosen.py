"""Choose the fine-tuning that stands for its task where a page shows only one.

The choice goes by the development score. A choice by test score would show the luckiest seed.
"""

from pipeline.report.collect import Collected, FinishedOutput
from pipeline.tasks.config import RANDOM
from pipeline.tasks.summary import dev_score


def chosen_finetunings(collected: Collected) -> dict[str, FinishedOutput]:
    """Return the trained fine-tuning with the best development score, by task."""
    chosen: dict[str, FinishedOutput] = {}
    best: dict[str, float] = {}
    for made in collected.of("finetune"):
        score = dev_score(made.counts)
        if made.counts["encoder"] == RANDOM or score is None:
            continue
        task = made.counts["task"]
        if task not in chosen or score > best[task]:
            chosen[task], best[task] = made, score
    return chosen
