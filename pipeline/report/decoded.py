"""Decode a few examples as text with their masks; only called if `share.text` allows it."""

from collections.abc import Iterator
from pathlib import Path

from data_prep.examples.chunks import Chunk, ChunkStore
from data_prep.tokenizers import Tokenizer
from pipeline.pages.blocks import Decoded, Piece

SHOWN = 3
LABELS = {0: "the second segment follows the first", 1: "the second segment does not follow"}


def decode_examples(examples: Path, tokenizer: Path) -> list[Decoded]:
    """Return the first held-out examples, whose masks are stored, else training examples."""
    reader = Tokenizer.load(tokenizer)
    for split in ("heldout", "train"):
        store = ChunkStore(examples, split)
        if store.rows:
            chunk = store.read(0)
            return [_decode(chunk, n, reader, split) for n in range(min(SHOWN, chunk.examples))]
    return []


def _decode(chunk: Chunk, number: int, tokenizer: Tokenizer, split: str) -> Decoded:
    begin, end = (int(place) for place in chunk.example_tokens[number : number + 2])
    stands = dict(_targets(chunk, number))
    pieces = [
        _piece(int(token), stands.get(position), tokenizer)
        for position, token in enumerate(chunk.tokens[begin:end])
    ]
    where = "held out" if split == "heldout" else "training"
    told = [where, f"{end - begin} pieces"]
    told += [LABELS[label] for label in (int(chunk.label[number]),) if label in LABELS]
    return Decoded("; ".join(told), pieces)


def _targets(chunk: Chunk, number: int) -> Iterator[tuple[int, int]]:
    """Yield the positions to predict, each with the token id in the input there."""
    if chunk.target is None or chunk.target_examples is None or chunk.input is None:
        return
    low, high = (int(place) for place in chunk.target_examples[number : number + 2])
    for target, stands in zip(chunk.target[low:high], chunk.input[low:high], strict=True):
        yield int(target), int(stands)


def _piece(token: int, stands: int | None, tokenizer: Tokenizer) -> Piece:
    text = tokenizer.piece(token)
    readable = text.removeprefix("##").replace("▁", "")
    space = " " if tokenizer.starts_word[token] else ""
    if token in (tokenizer.cls, tokenizer.sep):
        return Piece(readable, "special", space=" ")
    if stands is None:
        return Piece(readable, space=space)
    if stands == tokenizer.mask:
        return Piece(readable, "masked", "masked", space)
    if stands == token:
        return Piece(readable, "kept", "to predict, left as it is", space)
    return Piece(readable, "replaced", f"to predict, stands as {tokenizer.piece(stands)}", space)
