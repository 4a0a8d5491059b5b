"""Streams of words: what is read where, in both directions, on any ranks and from any position."""

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from data_prep.errors import SesameError
from data_prep.examples.chunks import ChunkStore
from data_prep.tokenizers import Tokenizer
from data_prep.tokenizers.characters import character_ids
from pipeline.data.cursor import Place
from pipeline.data.streams import HeldOutStreams, StreamLoader, StreamSlice, WordBatch, Words
from pipeline.models.elmo.config import ElmoConfig
from pipeline.models.elmo.network import ElmoForPretraining
from tests.data_prep.small_examples import read_all
from tests.pipeline.toy_streams import PREDICTED, make_examples

STREAMS, WINDOW = 6, 5
NAMES = ("forward", "forward_targets", "backward", "backward_targets")
Streams = dict[str, list[list[int]]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[ChunkStore, ChunkStore, Words, Path]:
    _, tokenizer_folder, folder = make_examples(tmp_path_factory.mktemp("streams"))
    words = Words.of(Tokenizer.load(tokenizer_folder), PREDICTED, 12)
    return ChunkStore(folder, "train"), ChunkStore(folder, "heldout"), words, tokenizer_folder


Made = tuple[ChunkStore, ChunkStore, Words, Path]


def texts(store: ChunkStore, split: str = "train") -> Streams:
    """The whole text in both directions, put together sentence by sentence."""
    text: Streams = {name: [[]] for name in NAMES}
    for chunk in read_all(store.folder, split):
        for start, end in zip(chunk.example_tokens[:-1], chunk.example_tokens[1:], strict=True):
            sentence = chunk.tokens[start:end].tolist()
            for direction, words in (("forward", sentence), ("backward", sentence[::-1])):
                text[direction][0] += words[:-1]
                text[f"{direction}_targets"][0] += words[1:]
    return text


def read(batches: list[list[WordBatch]], words: Words, word_ids: dict[bytes, int]) -> Streams:
    """What batches (by step) read: words known by their characters, targets by their ids."""
    found: Streams = {name: [] for name in NAMES}
    for step in batches:
        row = 0
        for batch in step:
            ids = torch.tensor([word_ids[each.numpy().tobytes()] for each in batch.characters_UC])
            values = {
                "forward": ids[batch.forward_index_ST],
                "forward_targets": batch.forward_targets_ST,
                "backward": ids[batch.backward_index_ST],
                "backward_targets": batch.backward_targets_ST,
            }
            for name, value_ST in values.items():
                for number, stretch in enumerate(value_ST.tolist(), row):
                    if number == len(found[name]):
                        found[name].append([])
                    found[name][number] += stretch
            row += len(batch.forward_targets_ST)
    return found


@pytest.fixture(scope="module")
def word_ids(made: Made) -> dict[bytes, int]:
    tokenizer = Tokenizer.load(made[3])
    pieces = [tokenizer.piece(number) for number in range(tokenizer.size)]
    return {
        each.tobytes(): number
        for number, each in enumerate(character_ids(pieces, 12).astype(np.int32))
    }


def known(ids: list[int]) -> list[int]:
    return [id if id < PREDICTED else 2 for id in ids]


def steps(made: Made, count: int, rank: int = 0, world: int = 1, **options: Any) -> list:
    share = StreamSlice(STREAMS, rank, world)
    return list(islice(StreamLoader(made[0], made[2], share, WINDOW, **options), count))


def test_streams_read_on_through_the_whole_text_and_past_its_end(
    made: Made, word_ids: dict[bytes, int]
) -> None:
    text = texts(made[0])
    length = len(text["forward"][0])
    apart = length // STREAMS
    count = 2 * apart // WINDOW + 3  # two epochs and more
    found = read([step.micro_batches for step in steps(made, count)], made[2], word_ids)
    for name in NAMES:
        whole = text[name][0] * 4
        for stream in range(STREAMS):
            expected = whole[stream * apart : stream * apart + count * WINDOW]
            expected = known(expected) if name.endswith("targets") else expected
            assert found[name][stream] == expected
    assert max(found["forward"][0]) >= PREDICTED, "rare words are read by their own characters"


@pytest.mark.parametrize(("world", "micro_batch_size"), [(1, 2), (2, None), (3, 1)])
def test_ranks_and_micro_batches_only_slice_the_streams(
    made: Made, word_ids: dict[bytes, int], world: int, micro_batch_size: int | None
) -> None:
    whole = read([step.micro_batches for step in steps(made, 70)], made[2], word_ids)
    sliced: Streams = {name: [] for name in NAMES}
    for rank in range(world):
        part = steps(made, 70, rank, world, micro_batch_size=micro_batch_size)
        assert all(step.rows == STREAMS for step in part)
        found = read([step.micro_batches for step in part], made[2], word_ids)
        for name in NAMES:
            sliced[name] += found[name]
    assert sliced == whole


def test_a_position_is_all_that_is_needed_to_go_on(made: Made) -> None:
    whole = steps(made, 80)
    for start in (1, 66):
        resumed = steps(made, 3, place=Place(step=start, position=whole[start].first_row))
        for step, other in zip(resumed, whole[start:], strict=False):
            assert (step.step, step.first_row, step.next_row) == (
                other.step, other.first_row, other.next_row,
            )  # fmt: skip
            assert torch.equal(
                step.micro_batches[0].backward_targets_ST,
                other.micro_batches[0].backward_targets_ST,
            )


def test_skipped_steps_are_passed_over(made: Made) -> None:
    whole = steps(made, 5)
    skipped = steps(made, 3, place=Place(skipped=[(STREAMS, 3 * STREAMS)]))
    assert [step.first_row // STREAMS for step in skipped] == [0, 3, 4]
    assert torch.equal(
        skipped[1].micro_batches[0].forward_index_ST, whole[3].micro_batches[0].forward_index_ST
    )


@pytest.mark.parametrize("rows", [STREAMS * 2, 10_000])
def test_held_out_text_is_read_once_from_its_beginning(
    made: Made, word_ids: dict[bytes, int], rows: int
) -> None:
    text = texts(made[1], "heldout")
    apart = len(text["forward"][0]) // STREAMS
    length = min(apart, rows // STREAMS * WINDOW)
    held_out = HeldOutStreams(
        made[1], made[2], StreamSlice(STREAMS), WINDOW, rows=rows, micro_batch_size=4
    )
    batches = list(held_out)
    by_step = [batches[start : start + 2] for start in range(0, len(batches), 2)]
    found = read(by_step, made[2], word_ids)
    for stream in range(STREAMS):
        expected = text["backward"][0][stream * apart : stream * apart + length]
        assert found["backward"][stream] == expected


def test_too_little_text_is_refused(made: Made) -> None:
    with pytest.raises(SesameError, match="too few for 1000 streams"):
        StreamLoader(made[0], made[2], StreamSlice(1000), WINDOW)
    with pytest.raises(SesameError, match="held-out words are fewer"):
        HeldOutStreams(made[1], made[2], StreamSlice(100_000), WINDOW, rows=10, micro_batch_size=4)


def test_windows_with_carried_state_are_one_long_pass(made: Made) -> None:
    """Both directions, as they are read; losses are sums in fp32, state is in double precision."""
    torch.manual_seed(0)
    config = ElmoConfig(
        cell=10, projection=4, dropout=0.0, character_dim=4, max_characters=12,
        filters=[[1, 4], [2, 4]], highways=1,
    )  # fmt: skip
    model = ElmoForPretraining(config, PREDICTED).double().eval()
    share, windows = StreamSlice(STREAMS), 12
    state, sums = None, torch.zeros(2, dtype=torch.double)
    with torch.no_grad():
        for step in islice(StreamLoader(made[0], made[2], share, WINDOW), windows):
            losses, state = model(step.micro_batches[0], state, None)
            sums += torch.stack(losses)
        (long,) = islice(StreamLoader(made[0], made[2], share, windows * WINDOW), 1)
        whole, last_state = model(long.micro_batches[0], None, None)
        afresh, _ = model(step.micro_batches[0], None, None)
    assert sums.tolist() == pytest.approx(torch.stack(whole).tolist(), rel=1e-6)
    assert torch.allclose(state, last_state, rtol=0, atol=1e-12)
    assert torch.stack(afresh).tolist() != pytest.approx(torch.stack(losses).tolist(), rel=1e-5)
