"""`sesame bench finetune`: fine-tuning on sentences, against transformers in a plain loop.

Both sides train and evaluate on the same sentences from the same weights, with the same batch size,
epochs, schedule, threads and optimizer, and classify by [CLS]. Each side has its own process; they
alternate in turns of a second or two, seed by seed. The peer shuffles, and pads to the longest
sentence of each batch or to 128. The peer's sentences are already tokenised; ours are tokenised
within the measured time. The last line has the development accuracies over the seeds.

Without a task, sentences are generated with learnable labels and SST-2's lengths: 9.4 words on
average. Without an encoder, a bert_mini of 30,522 tokens starts from random weights.
Try it: sesame bench finetune task=sst2 task.data_dir=/data/glue/SST-2 encoder=mine
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from data_prep.errors import UsageError
from data_prep.text.words import split_like_bert
from data_prep.tokenizers.huggingface import Specials, from_vocabulary, write_folder
from pipeline.bench.figures import Figure, compared
from pipeline.bench.transformers_loop import TransformersLoop
from pipeline.bench.turns import Side, Spent, race
from pipeline.config.schema import Config
from pipeline.encoders import BertEncoder, Encoder, random_encoder
from pipeline.models.bert.architectures import BERT
from pipeline.models.bert.config import BertConfig
from pipeline.models.bert.huggingface import to_huggingface
from pipeline.stages.encoder_inputs import open_encoder
from pipeline.stages.prepare_encoder import prepare_encoder
from pipeline.tasks.answers import ClassAnswers
from pipeline.tasks.config import FinetuneConfig, TaskConfig
from pipeline.tasks.examples import Example
from pipeline.tasks.finetuning import finetune
from pipeline.tasks.splits import Splits, read_splits

MINI = BertConfig(layers=4, hidden=256, heads=4, intermediate=1024)
VOCAB, USED = 30_522, 2000  # tokens of the model, distinct words of generated sentences
LONGEST, PAD = 128, 0
SEEDS = (1, 2, 3)
PEER = -1  # index of the peer in a race: the last
SENTENCES, EPOCHS = 2048, 2
PADDED_SENTENCES, PADDED_EPOCHS = 512, 1  # for the peer that pads to 128, five times as slow
TUNING = FinetuneConfig(
    lr=3e-4, epochs=EPOCHS, pooling="first", max_seq_length=LONGEST, accelerator="cpu"
)


def measure(config: Config) -> list[Figure]:
    """Return sentences per second against both peers, and the accuracies of both sides."""
    task, splits = _sentences(config)
    splits = replace(splits, test=splits.dev[:1])  # the peer does not score a test set
    encoder = _encoder(config, splits)
    few = replace(splits, train=splits.train[:PADDED_SENTENCES])
    once = replace(TUNING, epochs=PADDED_EPOCHS)
    by_default = replace(TUNING, pooling="mean")
    rounds = _race(encoder, task, splits, [TUNING, by_default], None)
    padded = _race(encoder, task, few, [once], LONGEST)
    unit = "sentences/s"
    trained, padded_trained = len(splits.train) * EPOCHS, len(few.train) * PADDED_EPOCHS
    ours, peers = ([runs[side].accuracy for runs in rounds] for side in (0, PEER))
    return [
        compared("peer pads to the longest", trained, unit, _timed(rounds, 0)),
        compared(f"peer pads to {LONGEST}", padded_trained, unit, _timed(padded, 0)),
        compared("ours with pooling=mean, peer to the longest", trained, unit, _timed(rounds, 1)),
        Figure(
            f"accuracy after {EPOCHS} epochs, {len(SEEDS)} seeds",
            fmean(ours), "", fmean(peers), fmean(ours) / fmean(peers),
            f"deviations {stdev(ours):.3f}, {stdev(peers):.3f}",
        ),
    ]  # fmt: skip


class TimedRun(NamedTuple):
    """One fine-tuning of one side."""

    spent: Spent
    accuracy: float  # on the development set


def _race(
    encoder: BertEncoder,
    task: TaskConfig,
    splits: Splits,
    configs: Sequence[FinetuneConfig],
    width: int | None,
) -> list[list[TimedRun]]:
    """Run, seed by seed, ours with each config, then the peer with the first config."""
    rounds = []
    for seed in SEEDS:
        own = [replace(config, seed=seed) for config in configs]
        sides: list[Side] = [partial(_Ours, encoder, task, splits, each) for each in own]
        peer = partial(_Peer, encoder, splits, own[0], width)
        rounds.append([TimedRun(*run) for run in race(sides, peer)])
    return rounds


def _timed(rounds: list[list[TimedRun]], side: int) -> list[tuple[Spent, Spent]]:
    """Return what ours with one config and the peer spent, round by round."""
    return [(runs[side].spent, runs[PEER].spent) for runs in rounds]


def _sentences(config: Config) -> tuple[TaskConfig, Splits]:
    """Return the task's sentences, or generated ones, limited to a bench's training size."""
    task = config.task
    if task.train is None:
        return TaskConfig(name="made up"), _made_up(SENTENCES, 872)
    if task.kind != "classify" or task.text_b is not None:
        raise UsageError(f"task={task.name}: the bench takes labelled sentences, such as task=sst2")
    own = replace(
        task,
        train_examples=task.train_examples or SENTENCES,
        further_tests={},
        unlabelled={},
        metric="accuracy",
    )
    return own, read_splits(own, seed=0)


def _made_up(train: int, dev: int) -> Splits:
    """Generate sentences of SST-2's lengths; a tenth of the words is positive, a tenth negative."""
    rng = np.random.default_rng(0)
    labels = ["bad", "good"]
    often = 1 / np.arange(1, USED + 1)  # word frequencies by Zipf's law
    examples = []
    for length in np.minimum(1 + rng.geometric(1 / 8.4, train + dev), 52):
        words = rng.choice(USED, length, p=often / often.sum())
        kind = int((words % 10 == 0).sum()) >= int((words % 10 == 1).sum())
        text = " ".join(f"w{word}" for word in words)
        examples.append(Example((text,), labels[kind], text, 0))
    return Splits(examples[:train], examples[train:], examples[train:], labels)


def _encoder(config: Config, splits: Splits) -> BertEncoder:
    """Return the configured encoder, or a bert_mini whose tokens are the sentences' words."""
    encoder: Encoder
    if config.encoder is not None:
        encoder = open_encoder(config, prepare_encoder("bench", config, []), seed=0)
    else:
        texts = (
            text for part in (splits.train, splits.dev) for each in part for text in each.texts
        )
        words = {word.lower() for text in texts for word in split_like_bert(text)[0]}
        names = [*Specials().names(), *sorted(words)][:VOCAB]
        names += [f"[unused{number}]" for number in range(VOCAB - len(names))]
        library = from_vocabulary(names, lowercase=True, strip_accents=False, specials=Specials())
        with TemporaryDirectory() as folder:
            write_folder(Path(folder), library, Specials(), None)
            encoder = random_encoder(MINI, Path(folder), seed=0)
    if not isinstance(encoder, BertEncoder) or encoder.bert.config.positions != "learned":
        raise UsageError(f"encoder={config.encoder}: the peer reads BERTs only")
    return encoder


class _Ours:
    """The work of `sesame finetune` after its files are read."""

    def __init__(
        self, encoder: BertEncoder, task: TaskConfig, splits: Splits, config: FinetuneConfig
    ) -> None:
        self._given = (encoder, splits, task, config)

    def __call__(self) -> float:
        """Train, evaluate after each epoch, score; return the last accuracy."""
        return finetune(*self._given).dev_scores[-1]


class _Peer:
    """The same training by transformers' classifier, from the same weights."""

    def __init__(
        self, encoder: BertEncoder, splits: Splits, config: FinetuneConfig, width: int | None
    ) -> None:
        from transformers import AutoModelForSequenceClassification
        from transformers import BertConfig as PeerConfig

        torch.manual_seed(config.seed)
        stated = BERT.stated(encoder.bert.config, encoder.bert.vocab_size, PAD)
        model = AutoModelForSequenceClassification.from_config(
            PeerConfig(**stated, num_labels=len(splits.labels))
        )
        model.load_state_dict(_encoder_weights(encoder), strict=False)
        answers = ClassAnswers(splits.labels)
        self._train, self._dev = (
            answers.encode(encoder, part, LONGEST) for part in (splits.train, splits.dev)
        )
        self._loop = TransformersLoop(model, config, PAD, width)

    def __call__(self) -> float:
        """Train, evaluate after each epoch; return the last accuracy."""
        for _ in self._loop.epochs(self._train):
            guesses = self._loop.outputs(self._dev).argmax(1)
        return float(np.mean(guesses == self._dev.gold))


def _encoder_weights(encoder: BertEncoder) -> dict[str, Tensor]:
    """Return the encoder's tensors under transformers' names."""
    own = {f"bert.{name}": value for name, value in encoder.bert.state_dict().items()}
    return to_huggingface(own, BERT, encoder.bert.config)
