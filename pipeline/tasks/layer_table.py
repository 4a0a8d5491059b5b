"""Score every layer choice: one head per choice and seed on a frozen encoder.

Follows Devlin et al. 2019 for CoNLL-2003 (section 5.3, table 7). Hidden states are computed once
for all choices and seeds. Finished scores survive a kill.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from data_prep.files import write_atomically
from pipeline.encoders import Encoder
from pipeline.encoders.stored import stored_states
from pipeline.tasks.config import LAYERS, FinetuneConfig, TaskConfig
from pipeline.tasks.finetuning import choose_device, finetune
from pipeline.tasks.heads import LAYERS_NEEDED
from pipeline.tasks.splits import Splits

STATES, RESULTS = ".states", ".results.json"
Scores = dict[str, dict[str, float]]  # by choice, by seed


def fill_table(
    encoder: Encoder,
    splits: Splits,
    task: TaskConfig,
    config: FinetuneConfig,
    seeds: int,
    out: Path,
    scored: Callable[[int, str, float], None] = lambda head, choice, score: None,
) -> Scores:
    """Return the test score of every choice and seed.

    Each score is written to `out` at once, so that a restarted call computes only missing ones.
    Calls `scored` with the number of each head, its choice and its score, earlier ones included.
    """
    path = out / RESULTS
    scores: Scores = json.loads(path.read_text()) if path.exists() else {}
    with stored_states(encoder, out / STATES, choose_device(config.accelerator)) as stored:
        for number, (choice, seed) in enumerate(heads(encoder.states, seeds), 1):
            if str(seed) not in scores.get(choice, {}):
                own = replace(config, layers=choice, seed=seed)
                outcome = finetune(stored, splits, task, own)
                scores.setdefault(choice, {})[str(seed)] = outcome.scores[task.metric]
                write_atomically(path, json.dumps(scores))
            scored(number, choice, scores[choice][str(seed)])
    path.unlink(missing_ok=True)
    return scores


def heads(states: int, seeds: int) -> Iterator[tuple[str, int]]:
    """Yield (choice, seed) for every layer choice that an encoder with `states` states allows."""
    for choice in LAYERS:
        if states > LAYERS_NEEDED.get(choice, 0):
            yield from ((choice, seed) for seed in range(1, seeds + 1))
