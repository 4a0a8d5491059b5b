"""Load a fine-tuned model and ask it, from Python.

    from pipeline import load_model

    model = load_model("mine/ner")
    for tags in model.predict(["Anna met Bo in Lund."]):
        print(tags.entities)

A reference is `<run>/<task>`, the beginning of a fingerprint, or a folder.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from data_prep.errors import UsageError
from data_prep.files import is_text
from data_prep.text.words import TextWords
from pipeline.inference.results import (
    Number,
    Result,
    answer_of,
    choice_of,
    label_of,
    labels_of,
    tags_of,
)
from pipeline.models.host_threads import one_ahead
from pipeline.store.models import find_model
from pipeline.store.outputs import Store
from pipeline.tasks.answers import Floats, Prediction, TagAnswers
from pipeline.tasks.batches import TaskData
from pipeline.tasks.config import OF_TEXTS
from pipeline.tasks.device import choose_device
from pipeline.tasks.examples import Document, Example
from pipeline.tasks.finetuned import Finetuned, load_finetuned
from pipeline.tasks.model import head_outputs
from pipeline.tasks.multilabel_answers import MultilabelAnswers

# A text, the two texts of a pair, a question and its passage, the words of a sentence, a context
# and its choices, or a sentence with its document.
Item = str | tuple[str, str] | list[str] | tuple[str, list[str]] | Example

BATCH_ITEMS = 512  # sorted by length together; bounds memory and what an interruption loses

# Forms of items, as messages call them.
TEXT = "a text"
TEXT_OR_WORDS = "a text or a list of words"
PAIR = "a pair (text, text)"
CHOICES = "a context and its choices (text, [text, text, …])"


@dataclass(frozen=True)
class Answered:
    """The results of items, in order."""

    results: list[Result]
    cut: int  # items that were truncated to what the model reads


@dataclass(frozen=True)
class _Asked:
    """Items of a batch, ready for the network."""

    items: Sequence[Item]
    examples: list[Example]
    data: TaskData | None  # of the examples that have words; None if none has


@dataclass(frozen=True)
class FinetunedModel:
    """A fine-tuned model that answers texts."""

    finetuned: Finetuned
    folder: Path

    @property
    def kind(self) -> str:
        """The kind of its task: see task.kind."""
        return self.finetuned.task.kind

    @property
    def item_form(self) -> str:
        """The form of an item, in words."""
        if self.kind == "choice":
            return CHOICES
        if self.kind == "tag":
            return TEXT_OR_WORDS
        return PAIR if self.kind == "span" or self.finetuned.task.text_b is not None else TEXT

    def predict(self, items: Sequence[Item]) -> list[Result]:
        """Return one result per item, in order.

        An item is a text, a pair, for tagging also a list of words, and for multiple choice a
        context with a list of choices. Raises a UsageError for an item of another form. An empty
        text is answered too. A text that is longer than the model reads is truncated; only tags and
        answers are found in all of it.
        """
        if isinstance(items, str):
            raise UsageError("predict: give a list of items; for one text, [text]")
        rest = iter(items)
        batches = iter(lambda: list(islice(rest, BATCH_ITEMS)), [])
        return [result for answered in self.answers(batches) for result in answered.results]

    def answers(self, batches: Iterable[Sequence[Item]]) -> Iterator[Answered]:
        """Yield what `predict` returns for each batch, and the number of truncated items.

        While the network computes a batch, the next one is encoded and the last one decoded.
        """
        for asked, outputs in one_ahead(self._compute, map(self._encode, batches)):
            yield self._decode(asked, outputs)

    def _encode(self, items: Sequence[Item]) -> _Asked:
        examples = [self.example(item) for item in items]
        asked = [example for example in examples if example.texts]  # no words, no tags
        return _Asked(items, examples, self.finetuned.encode(asked) if asked else None)

    def _compute(self, asked: _Asked) -> tuple[_Asked, Floats]:
        if asked.data is None:
            return asked, np.empty((0, 0), np.float32)
        return asked, head_outputs(self.finetuned.model, asked.data)

    def _decode(self, asked: _Asked, outputs: Floats) -> Answered:
        items, examples, data = asked.items, asked.examples, asked.data
        if data is None:
            return Answered([self._no_tags(item) for item in items], 0)
        answers = self.finetuned.answers
        results: list[Result]
        match self.kind:
            case "classify":
                results = [label_of(logits_C, answers.labels) for logits_C in outputs]
            case "multilabel":
                assert isinstance(answers, MultilabelAnswers)
                results = [
                    labels_of(logits_C, answers.labels, answers.threshold) for logits_C in outputs
                ]
            case "regress":
                results = [Number(_number(guess)) for guess in answers.decode(outputs, data)]
            case "tag":
                results = self._tags(outputs, examples, items)
            case "choice":
                guesses = zip(answers.decode(outputs, data), examples, strict=True)
                results = [choice_of(guess, example.texts[1:]) for guess, example in guesses]
            case _:
                results = [answer_of(guess) for guess in answers.decode(outputs, data)]
        return Answered(results, data.cut_examples)

    def example(self, item: Item) -> Example:
        """Return an item as the task's example, without an answer."""
        if isinstance(item, Example):
            return item
        if not all(is_text(text) for text in strings_of(item)):
            raise UsageError("predict: a text has half a character (a lone surrogate); repair it")
        texts = self._texts(item)
        # Tags that were learnt from whole texts are predicted on whole texts.
        if isinstance(item, str) and texts and self.finetuned.task.reader in OF_TEXTS:
            return Example(texts, None, "", 0, document=Document(self._words(item), (0,)))
        return Example(texts, None, "", 0)

    def _texts(self, item: Item) -> tuple[str, ...]:
        form = self.item_form
        if isinstance(item, str) and self.kind == "tag":
            return self._words(item).every
        if isinstance(item, list) and self.kind == "tag" and _are_texts(item):
            return tuple(item)
        if isinstance(item, str) and form == TEXT:
            return (item,)
        if isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str):
            first, second = item
            if form == PAIR and isinstance(second, str):
                return (first, second)
            if form == CHOICES and isinstance(second, list) and second and _are_texts(second):
                return (first, *second)
        raise UsageError(f"predict: an item must be {form}, not a {type(item).__name__}")

    def _words(self, text: str) -> TextWords:
        """Split a text to tag."""
        return TextWords.of(text, self.finetuned.task.text_rule)

    def _no_tags(self, item: Item) -> Result:
        return tags_of([], [], (), (), item if isinstance(item, str) else "")

    def _tags(
        self, outputs: Floats, examples: list[Example], items: Sequence[Item]
    ) -> list[Result]:
        """Return the tags of sentences; one without words has none."""
        answers = self.finetuned.answers
        assert isinstance(answers, TagAnswers)
        chosen, sure = answers.chosen(outputs)
        results: list[Result] = []
        start = 0
        for example, item in zip(examples, items, strict=True):
            own = slice(start, start + len(example.texts))
            start = own.stop
            if isinstance(item, str):
                text, places = item, [(a, b) for a, b in self._words(item).characters.tolist()]
            else:
                text, places = " ".join(example.texts), _places(example.texts)
            tags, scores = [answers.labels[tag] for tag in chosen[own]], sure[own].tolist()
            results.append(tags_of(tags, scores, example.texts, places, text))
        return results


def strings_of(item: Item) -> Iterator[str]:
    """Yield the texts of an item, whatever its form."""
    if isinstance(item, str):
        yield item
    elif isinstance(item, list | tuple):
        for part in item:
            yield from strings_of(part)


def _are_texts(parts: Sequence[object]) -> bool:
    return all(isinstance(part, str) for part in parts)


def _number(guess: Prediction) -> float:
    assert isinstance(guess.answer, float), "a regression answers with numbers"
    return guess.answer


def _places(words: Sequence[str]) -> list[tuple[int, int]]:
    """Return the characters of words that are joined by single spaces."""
    ends = np.cumsum([len(word) + 1 for word in words]) - 1
    return [(int(end) - len(word), int(end)) for word, end in zip(words, ends, strict=True)]


def open_model(folder: Path) -> FinetunedModel:
    """Load the model in a folder, on the best device there is."""
    finetuned = load_finetuned(folder)
    finetuned.model.to(choose_device("auto"))
    return FinetunedModel(finetuned, folder)


def read_model(reference: str | Path, store: str | Path | None = None) -> FinetunedModel:
    """Load the model of a reference; see `pipeline.load_model`."""
    place = Store(Path(store or os.environ.get("SESAME_STORE", "store")))
    return open_model(find_model(f"model={reference}", str(reference), place))
