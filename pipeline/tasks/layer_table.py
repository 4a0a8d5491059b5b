"""Score every layer choice: one head per choice and seed on a frozen encoder.

Follows Devlin et al. 2019 for CoNLL-2003 (section 5.3, table 7). Hidden states are computed once
for all choices and seeds, in half precision. Finished scores survive a kill: the heads that need
most states are trained first, so that a restarted table computes only states that are still needed.
"""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from data_prep.files import write_atomically
from data_prep.progress import console
from pipeline.encoders import Encoder
from pipeline.encoders.stored import stored_states
from pipeline.tasks.config import LAYERS, FinetuneConfig, TaskConfig
from pipeline.tasks.device import choose_device
from pipeline.tasks.finetuning import finetune
from pipeline.tasks.heads import LAYERS_NEEDED, needed_states
from pipeline.tasks.splits import Splits
from pipeline.training.exits import Interrupted

STATES, RESULTS = ".states", ".results.json"
Head = tuple[str, int]  # layer choice, seed
Scores = dict[str, dict[str, dict[str, float]]]  # by choice, by seed: development and test score


def fill_table(
    encoder: Encoder,
    splits: Splits,
    task: TaskConfig,
    config: FinetuneConfig,
    seeds: int,
    out: Path,
    scored: Callable[[int, str, float], None] = lambda head, choice, score: None,
) -> Scores:
    """Return the development and the test score of every choice and seed.

    Each is written to RESULTS below `out` at once, so that a restarted call computes only missing
    ones; remove that file when the output is finished. Calls
    `scored` with the number of each head, its choice and its development score, earlier ones
    included.
    """
    path = out / RESULTS
    scores: Scores = json.loads(path.read_text()) if path.exists() else {}
    every = heads(encoder.states, seeds)
    missing = [(choice, seed) for choice, seed in every if str(seed) not in scores.get(choice, {})]
    needed = sorted({n for choice, _ in missing for n in needed_states(choice, encoder.states)})
    for number, (choice, seed) in enumerate((head for head in every if head not in missing), 1):
        scored(number, choice, scores[choice][str(seed)]["dev"])
    device = choose_device(config.accelerator)
    started = time.monotonic()
    with stored_states(encoder, out / STATES, device, needed) as stored:
        for done, (choice, seed) in enumerate(missing, 1):
            own = replace(config, layers=choice, seed=seed)
            own_encoder = stored.reading(needed_states(choice, encoder.states))
            number = len(every) - len(missing) + done
            try:
                outcome = finetune(own_encoder, splits, task, own)
            except Interrupted as error:
                raise Interrupted(
                    f"interrupted: {number - 1} of {len(every)} heads trained; run the same "
                    "command to go on"
                ) from error
            dev, test = outcome.dev_score, outcome.scores[task.metric]
            scores.setdefault(choice, {})[str(seed)] = {"dev": dev, "test": test}
            write_atomically(path, json.dumps(scores))
            left = time_left(time.monotonic() - started, done, len(missing))
            console.print(
                f"head {number} of {len(every)}: {choice}, seed {seed}, {task.metric} "
                f"{100 * dev:.1f} on dev{left}",
                markup=False,
            )
            scored(number, choice, dev)
    return {choice: scores[choice] for choice in LAYERS if choice in scores}


def heads(states: int, seeds: int) -> list[Head]:
    """Return all heads that an encoder with `states` states allows, those of most states first."""
    possible = [choice for choice in LAYERS if states > LAYERS_NEEDED.get(choice, 0)]
    possible.sort(key=lambda choice: -len(needed_states(choice, states)))
    return [(choice, seed) for choice in possible for seed in range(1, seeds + 1)]


def time_left(seconds: float, done: int, total: int) -> str:
    """Return the expected rest of the time for the end of a line; empty after the last head."""
    rest = seconds / done * (total - done)
    if done == total:
        return ""
    return f"; about {rest:.0f} s left" if rest < 100 else f"; about {rest / 60:.0f} min left"
