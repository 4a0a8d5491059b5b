"""The steps of a fine-tuning: the bundles of each, and the steps after which it is evaluated.

Everything follows from the data's lengths and the settings, so a resumed training reads the same
bundles as an uninterrupted one (see `TaskData` for bundles).
"""

import hashlib
import math

import numpy as np

from pipeline.data.cursor import Identity
from pipeline.tasks.batches import WINDOW, Ints, TaskData, training_order
from pipeline.tasks.config import FinetuneConfig

LOG_EVERY = 10  # steps between two lines of the journal; evaluations write a line too


class TrainingPlan:
    """The bundles of every optimizer step, in epochs."""

    def __init__(self, train: TaskData, config: FinetuneConfig) -> None:
        self._lengths, self._config = train.lengths, config
        self.steps_per_epoch = math.ceil(len(train.lengths) / config.batch_size)
        self.total = self.steps_per_epoch * config.epochs
        self._known: tuple[int, list[Ints]] = (0, [])  # an epoch and its batches
        self._train = train

    def bundles(self, step: int) -> Ints:
        """Return the bundles of a step, counted from 0; longer ones come first."""
        epoch = self.epoch(step + 1)
        if self._known[0] != epoch:
            rng = np.random.default_rng([self._config.seed, epoch])
            size = self._config.batch_size
            self._known = epoch, training_order(self._lengths, size, rng)
        return self._known[1][step % self.steps_per_epoch]

    def epoch(self, steps: int) -> int:
        """Return the epoch, counted from 1, that the last of `steps` steps belongs to."""
        return max(1, math.ceil(steps / self.steps_per_epoch))

    def is_evaluated(self, steps: int) -> bool:
        """Return True if the model is evaluated after this many steps."""
        return steps == self.total or steps % (self._config.eval_every or self.steps_per_epoch) == 0

    def is_logged(self, steps: int) -> bool:
        """Return True if the journal gets a line after this many steps."""
        return steps % LOG_EVERY == 0 or self.is_evaluated(steps)

    def position(self, steps: int) -> int:
        """Return the number of bundles that this many steps read."""
        epochs, rest = divmod(steps, self.steps_per_epoch)
        return epochs * len(self._lengths) + min(rest * self._config.batch_size, len(self._lengths))

    def identity(self) -> Identity:
        """Return the data that a checkpoint of this training belongs to."""
        digest = hashlib.blake2b(digest_size=16)
        inputs = self._train.inputs
        for values in (inputs.tokens, inputs.offsets, self._train.gold):
            digest.update(np.ascontiguousarray(values).tobytes())
        return Identity(
            examples=digest.hexdigest(),
            shards="",
            seed=self._config.seed,
            shuffle_window=WINDOW,
            global_batch_size=self._config.batch_size,
            ramp_steps=0,
        )
