"""`sesame bench predict`: predictions per second, against transformers in a plain loop.

Both sides load the same folder and answer the same texts: labels of sentences, tags of words. Texts
are tokenised within the measured time. The peer tokenises all texts, sorts them by length, and pads
batches of 32 to the longest. Each side has its own process; they alternate in turns of a second or
two, round by round. Each has answered one text before. Answers must agree. Weights are random, in
the sizes mini and base.

Texts: with task.data_dir=<folder>, SST-2's and WNUT-17's (glue/SST-2 and ner below it); without, as
many generated words per sentence as these have.
Try it: sesame bench predict task.data_dir=/data
"""

import gc
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from data_prep.text.words import split_like_bert
from data_prep.tokenizers.huggingface import Specials, from_vocabulary, write_folder
from pipeline.bench.figures import Figure, compared
from pipeline.bench.turns import race
from pipeline.config.schema import Config
from pipeline.encoders import random_encoder
from pipeline.inference.models import read_model
from pipeline.inference.results import Label, Tags
from pipeline.models.bert.config import BertConfig
from pipeline.tasks.config import FinetuneConfig, TaskConfig
from pipeline.tasks.conll import read_conll
from pipeline.tasks.examples import TaskFile
from pipeline.tasks.finetuned import build, save_model
from pipeline.tasks.kinds import make_answers
from pipeline.tasks.table import read_table

SIZES = {
    "mini": BertConfig(layers=4, hidden=256, heads=4, intermediate=1024),
    "base": BertConfig(layers=12, hidden=768, heads=12, intermediate=3072),
}
COUNTS = {"mini": 8192, "base": 96}  # sentences; some seconds for the peer
ROUNDS = 3
VOCAB, USED = 30_522, 2000  # tokens of the model, distinct words of generated sentences
LONGEST, BATCH = 128, 32
MEAN_WORDS = {"sentences": 19.5, "tags": 18.2}  # of SST-2's development set, of WNUT-17's training
TASKS = {
    "sentences": TaskConfig(name="sentences", kind="classify"),
    "tags": TaskConfig(name="tags", kind="tag", reader="conll", metric="entity_f1"),
}
LABELS = {"sentences": ["bad", "good"], "tags": ["O", "B-X", "I-X", "B-Y", "I-Y"]}
Text = str | list[str]  # a sentence, or its words
AGREEING = 0.999  # share of equal answers; a tie may go either way in the last bit


def measure(config: Config) -> list[Figure]:
    """Return sentences per second, by size of model and kind of task."""
    figures = []
    for kind, task in TASKS.items():
        items = _items(kind, config.task.data_dir)
        for size, model in SIZES.items():
            own = [items[n % len(items)] for n in range(COUNTS[size])]
            with TemporaryDirectory() as folder:
                _write_model(Path(folder), model, task, LABELS[kind], own)
                rounds = [_round(folder, task.kind, own) for _ in range(ROUNDS)]
            figures.append(compared(f"{kind}, {size}", len(own), "sentences/s", rounds))
    return figures


def _round(folder: str, kind: str, items: Sequence[Text]) -> tuple[Any, Any]:
    peer: type[_Classifier] | type[_Tagger] = _Tagger if kind == "tag" else _Classifier
    (spent, ours), (peers, theirs) = race(
        [partial(_Ours, folder, items)], partial(peer, folder, items)
    )
    equal = np.mean([one == other for one, other in zip(ours, theirs, strict=True)])
    assert equal >= AGREEING, f"only {equal:.1%} of the answers are equal"
    return spent, peers


def _items(kind: str, root: str | None) -> list[Text]:
    """Return the texts of a kind of task: SST-2's sentences or WNUT-17's lists of words."""
    if root is None:
        return _made_up(kind)
    if kind == "sentences":
        rows = read_table(TaskFile(Path(root) / "glue/SST-2/dev.tsv"), TaskConfig())
        return [row.texts[0] for row in rows]
    rows = read_conll(TaskFile(Path(root) / "ner/wnut17train.conll"), TASKS["tags"])
    return [list(row.texts) for row in rows]


def _made_up(kind: str) -> list[Text]:
    rng = np.random.default_rng(0)
    often = 1 / np.arange(1, USED + 1)  # word frequencies by Zipf's law
    items: list[Text] = []
    for length in np.minimum(rng.poisson(MEAN_WORDS[kind], max(COUNTS.values())) + 1, LONGEST - 2):
        words = [f"w{word}" for word in rng.choice(USED, length, p=often / often.sum())]
        items.append(words if kind == "tags" else " ".join(words))
    return items


def _write_model(
    folder: Path, model: BertConfig, task: TaskConfig, labels: list[str], items: Sequence[Text]
) -> None:
    """Write a folder that both sides load; its tokens are the words of the texts."""
    texts = (" ".join(item) if isinstance(item, list) else str(item) for item in items)
    words = {word.lower() for text in texts for word in split_like_bert(text)[0]}
    names = [*Specials().names(), *sorted(words)][:VOCAB]
    names += [f"[unused{number}]" for number in range(VOCAB - len(names))]
    library = from_vocabulary(names, lowercase=True, strip_accents=False, specials=Specials())
    with TemporaryDirectory() as made:
        write_folder(Path(made), library, Specials(), None)
        torch.manual_seed(0)
        encoder = random_encoder(model, Path(made), seed=0)
        answers = make_answers(task, labels, [])
        config = FinetuneConfig(max_seq_length=LONGEST)
        save_model(build(encoder, answers, task, config), folder)


class _Ours:
    """The work of `sesame predict` between reading and writing lines."""

    def __init__(self, folder: str, items: Sequence[Text]) -> None:
        self._model, self._items = read_model(folder), items
        self._model.predict(items[:1])  # loads compiled code, as every process does once
        gc.freeze()  # as `sesame predict` does

    def __call__(self) -> list[Any]:
        """Return the label, or the tags, of every text."""
        return [
            each.label if isinstance(each, Label) else each.tags
            for each in self._model.predict(self._items)
            if isinstance(each, Label | Tags)
        ]


class _Peer(ABC):
    """A class of transformers in a loop over batches of similar length."""

    loader: str

    def __init__(self, folder: str, items: Sequence[Text]) -> None:
        import transformers

        self._words = transformers.AutoTokenizer.from_pretrained(folder)
        auto = getattr(transformers, self.loader)
        self._model = auto.from_pretrained(folder).eval()
        self._labels = self._model.config.id2label
        self._items = items[:1]
        self()
        self._items = items

    @abstractmethod
    def __call__(self) -> list[Any]:
        """Return the label, or the tags, of every text."""

    @torch.inference_mode()
    def _answers(self, decode: Callable[[Any, Any], list[Any]], **how: Any) -> list[Any]:
        encoded = self._words(self._items, truncation=True, max_length=LONGEST, **how)
        order = np.argsort([len(ids) for ids in encoded["input_ids"]], kind="stable")
        answers: list[Any] = [None] * len(order)
        for rows in np.split(order, range(BATCH, len(order), BATCH)):
            part = {key: [encoded[key][row] for row in rows] for key in encoded}
            inputs = self._words.pad(part, return_tensors="pt")
            shares = self._model(**inputs).logits.softmax(-1)
            for row, share in zip(rows, shares, strict=True):
                answers[row] = decode(encoded.encodings[row], share)
        return answers


class _Classifier(_Peer):
    loader = "AutoModelForSequenceClassification"

    def __call__(self) -> list[Any]:
        """Return the most probable label of every sentence."""
        return self._answers(lambda encoding, share_C: self._labels[int(share_C.argmax())])


class _Tagger(_Peer):
    loader = "AutoModelForTokenClassification"

    def __call__(self) -> list[Any]:
        """Return the tags of every sentence, read at each word's first token."""
        return self._answers(self._tags, is_split_into_words=True)

    def _tags(self, encoding: Any, share_LC: torch.Tensor) -> list[str]:
        best_L = share_LC.argmax(-1).tolist()
        firsts: dict[int, int] = {}
        for place, word in enumerate(encoding.word_ids):
            if word is not None:
                firsts.setdefault(word, place)
        return [self._labels[best_L[place]] for place in firsts.values()]
