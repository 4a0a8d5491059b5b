"""`sesame bench finetune`: fine-tuning on short sentences beside transformers in a plain loop.

bert_mini, the same 256 sentences a round on all sides, in batches of 32, same threads, same
optimizer, sides alternating. Sentences have SST-2's lengths: 9.4 words on average, the longest of
32 about 33. The peers shuffle, and pad to the longest of each batch or to 128. What sentences say
is made up, with labels that can be learnt; the last line compares accuracies on new sentences
after the same epochs, batch size and learning rate from the same weights.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from data_prep.tokenizers.huggingface import Specials, from_vocabulary, write_folder
from pipeline.bench.figures import Figure, alternate, compared
from pipeline.config import Config
from pipeline.encoders import BertEncoder, random_encoder
from pipeline.models.architectures import BERT
from pipeline.models.config import BertConfig
from pipeline.models.huggingface import to_huggingface
from pipeline.tasks.answers import ClassAnswers
from pipeline.tasks.batches import TaskData, training_order
from pipeline.tasks.config import FinetuneConfig
from pipeline.tasks.examples import Example
from pipeline.tasks.finetuning import Model, head_outputs, train_step
from pipeline.tasks.heads import Head
from pipeline.tasks.optimizer import make_optimizer

Rows = NDArray[np.int64]
MINI = BertConfig(layers=4, hidden=256, heads=4, intermediate=1024)
VOCAB, USED = 30_522, 2000  # pieces of the model, and those that sentences are made of
LONGEST, PAD = 128, 0
BATCH, SENTENCES = 32, 256
LEARNT, LEARNT_EPOCHS = 1024, 2  # sentences and epochs of the comparison of accuracies
LABELS = ("bad", "good")
TUNING = FinetuneConfig(lr=3e-4, batch_size=BATCH, accelerator="cpu")


def measure(config: Config) -> list[Figure]:
    """Sentences a second beside both peers, and what each has learnt."""
    with TemporaryDirectory() as folder:
        encoder = _encoder(Path(folder))
    data = ClassAnswers(LABELS, []).encode(encoder, _sentences(SENTENCES, 0), LONGEST)
    figures = [
        _speed("padded to the longest", encoder, data, None, rounds=5),
        _speed(f"padded to {LONGEST}", encoder, data, LONGEST, rounds=3),
    ]
    return [*figures, _accuracy(encoder)]


def _encoder(folder: Path) -> BertEncoder:
    """A bert_mini whose pieces are made-up words."""
    vocabulary = [*Specials().names(), *(f"w{number}" for number in range(VOCAB - 5))]
    library = from_vocabulary(vocabulary, lowercase=True, strip_accents=False, specials=Specials())
    write_folder(folder, library, Specials(), None)
    encoder = random_encoder(MINI, folder, seed=0)
    assert isinstance(encoder, BertEncoder)
    return encoder


def _sentences(count: int, seed: int) -> list[Example]:
    """Sentences of SST-2's lengths; every tenth kind of word is kind, another tenth is not."""
    rng = np.random.default_rng(seed)
    examples = []
    for length in np.minimum(1 + rng.geometric(1 / 8.4, count), 52):
        words = rng.integers(0, USED, length)
        kind = int((words % 10 == 0).sum()) >= int((words % 10 == 1).sum())
        text = " ".join(f"w{word}" for word in words)
        examples.append(Example((text,), LABELS[kind], text, 0))
    return examples


def _speed(
    name: str, encoder: BertEncoder, data: TaskData, width: int | None, rounds: int
) -> Figure:
    ours, peer = _Ours(encoder), _Peer(encoder, width)
    run, peer_run = partial(ours.epoch, data, 1), partial(peer.epoch, data, 1)
    run(), peer_run()  # the first steps allocate
    timed = alternate(run, peer_run, rounds)
    return compared(f"bert_mini, {name}", SENTENCES, "sentences/s", timed)


def _accuracy(encoder: BertEncoder) -> Figure:
    answers = ClassAnswers(LABELS, [])
    train, test = (
        answers.encode(encoder, _sentences(count, seed), LONGEST)
        for count, seed in ((LEARNT, 1), (1000, 2))
    )
    right = []
    for side in (_Peer(encoder, None), _Ours(encoder)):  # ours last: it trains the encoder itself
        for epoch in range(1, LEARNT_EPOCHS + 1):
            side.epoch(train, epoch)
        right.append(float((side.answers(test) == test.gold).mean()))
    peer, ours = right
    return Figure(f"accuracy after {LEARNT_EPOCHS} epochs", ours, "", peer, ours / peer)


class _Ours:
    """Our loop, with its flat batches bucketed by length."""

    def __init__(self, encoder: BertEncoder) -> None:
        torch.manual_seed(0)
        self.model = Model(encoder, Head("classify", len(LABELS), encoder, TUNING), frozen=False)
        self.optimizer = make_optimizer(encoder, self.model.head, TUNING)

    def epoch(self, data: TaskData, seed: int) -> None:
        """Train on all sentences once."""
        for rows in training_order(data.inputs.lengths, BATCH, np.random.default_rng(seed)):
            train_step(self.model, data, rows, self.optimizer, TUNING.clip)

    def answers(self, data: TaskData) -> Rows:
        """Which label each sentence gets."""
        best: Rows = head_outputs(self.model, data).argmax(1)
        return best


class _Peer:
    """transformers' classifier in the loop that its examples show."""

    def __init__(self, encoder: BertEncoder, width: int | None) -> None:
        from transformers import AutoModelForSequenceClassification
        from transformers import BertConfig as PeerConfig

        torch.manual_seed(0)
        stated = PeerConfig(**BERT.stated(MINI, VOCAB, PAD), num_labels=len(LABELS))
        self.model = AutoModelForSequenceClassification.from_config(stated)
        own = {f"bert.{name}": value for name, value in encoder.bert.state_dict().items()}
        self.model.load_state_dict(to_huggingface(own, BERT, MINI), strict=False)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=TUNING.lr, weight_decay=TUNING.weight_decay, fused=True
        )
        self.width = width

    def epoch(self, data: TaskData, seed: int) -> None:
        """Train on all sentences once."""
        self.model.train()
        order = np.random.default_rng(seed).permutation(len(data.gold))
        for inputs, gold_E in self._batches(data, order):
            self.optimizer.zero_grad(set_to_none=True)
            torch.autograd.backward(self.model(**inputs, labels=gold_E).loss)
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), TUNING.clip)
            self.optimizer.step()

    @torch.inference_mode()
    def answers(self, data: TaskData) -> Rows:
        """Which label each sentence gets."""
        self.model.eval()
        batches = self._batches(data, np.arange(len(data.gold)))
        best: Rows = torch.cat(
            [self.model(**inputs).logits.argmax(1) for inputs, _ in batches]
        ).numpy()
        return best

    def _batches(self, data: TaskData, order: Rows) -> Iterator[tuple[dict[str, Tensor], Tensor]]:
        for rows in np.split(order, range(BATCH, len(order), BATCH)):
            batch, gold_E = data.batch(rows)
            width = self.width or int(batch.lengths.max())
            real_EL = torch.arange(width) < torch.from_numpy(batch.lengths)[:, None]
            tokens_EL = torch.full(real_EL.shape, PAD)
            tokens_EL[real_EL] = batch.tokens_N
            yield {"input_ids": tokens_EL, "attention_mask": real_EL.long()}, gold_E
