"""Sample errors of a fine-tuning, the most confident first; only made if share.text allows it."""

from collections.abc import Sequence

from pipeline.pages.blocks import Decoded, Piece
from pipeline.pages.wording import percent
from pipeline.report.predictions import Judged

SHOWN = 5
LONGEST = 300  # maximum characters shown of a text


def sample_errors(kind: str, predictions: Sequence[Judged]) -> list[Decoded]:
    """Return the wrong predictions with the highest confidence."""
    wrong = [each for each in predictions if not each.is_right]
    wrong.sort(key=lambda each: -each.confidence)
    show = {"tag": _tagged, "span": _answered}.get(kind, _labelled)
    return [show(each) for each in wrong[:SHOWN]]


def _labelled(each: Judged) -> Decoded:
    gold, guess = (_label(label) for label in (each.gold, each.prediction))
    title = f"gold: {gold}; predicted: {guess}; confidence {percent(each.confidence)}"
    return Decoded(title, [Piece(_cut(text), space=" ") for text in each.inputs])


def _label(label: str | list[str]) -> str:
    """Return a label, or all labels of a multi-label text."""
    return label if isinstance(label, str) else ", ".join(label) or "without label"


def _answered(each: Judged) -> Decoded:
    accepted = " or ".join(dict.fromkeys(map(str, each.gold))) or "no answer"
    predicted = each.prediction or "no answer"
    title = f"gold: {accepted}; predicted: {predicted}; confidence {percent(each.confidence)}"
    return Decoded(_cut(title), [Piece(_cut(each.inputs[0]))])


def _tagged(each: Judged) -> Decoded:
    """Return the sentence; a wrong word stands with its gold and its predicted tag."""
    pieces: list[Piece] = []
    shown = 0
    for word, gold, guess in zip(each.inputs, each.gold, each.prediction, strict=True):
        text = word if gold == guess else f"{word} [gold {gold}, predicted {guess}]"
        shown += len(text) + 1
        if shown > LONGEST:
            pieces.append(Piece("…", space=" "))
            break
        pieces.append(Piece(text, "" if gold == guess else "replaced", space=" "))
    title = f"confidence of the least certain word {percent(each.confidence)}"
    return Decoded(title, pieces)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
