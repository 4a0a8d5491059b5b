"""A task's splits as inputs of a model; each is encoded when it is first needed.

An encoder may get weights by encoding: static vectors hold the words seen so far. Training needs
the same weights in every process, so those of `training` always come first, and test examples,
which may have other words, after training.
"""

from collections.abc import Sequence
from functools import cached_property

from pipeline.tasks.answers import Answers
from pipeline.tasks.batches import TaskData
from pipeline.tasks.examples import Example
from pipeline.tasks.model import Model
from pipeline.tasks.splits import Splits


class EncodedSplits:
    """Encodes splits for one model; a split that is encoded is kept."""

    def __init__(self, model: Model, answers: Answers, splits: Splits, max_length: int) -> None:
        self._model, self._answers = model, answers
        self._splits, self._max_length = splits, max_length

    def training(self) -> tuple[TaskData, TaskData]:
        """Return the training and the development data, encoded in this order."""
        return self._train, self.dev

    @property
    def cut_in_training(self) -> int:
        """The truncated inputs of `training`."""
        return sum(part.inputs.cut for part in self.training())

    @cached_property
    def dev(self) -> TaskData:
        """The development data."""
        return self.encode(self._splits.dev)

    @cached_property
    def test(self) -> TaskData:
        """The test data; the same object as `dev` if there is only one file."""
        is_dev = self._splits.test is self._splits.dev
        return self.dev if is_dev else self.encode(self._splits.test)

    def encode(self, examples: Sequence[Example]) -> TaskData:
        """Encode any examples."""
        return self._answers.encode(self._model.encoder, examples, self._max_length)

    @cached_property
    def _train(self) -> TaskData:
        return self.encode(self._splits.train)
