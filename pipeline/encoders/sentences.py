"""Sentence vectors from any encoder: the pooled vectors of a text's units.

Special units such as [CLS] count as units, as in sentence-transformers. A text that does not fit
into the encoder is truncated. From Python:
    first, second = load_encoder("mine").embed(["A man sings.", "A song."], unit="sentence")
To a file: `sesame embed encoder=mine input=sentences.txt unit=sentence`

S sentences, L layers, D width of a vector
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from data_prep.errors import UsageError
from pipeline.encoders.embed import LONGEST, GivesStates, Layers, chunks_of, lines_of
from pipeline.encoders.evaluation import for_each_batch
from pipeline.encoders.inputs import EncodedInputs, Ints
from pipeline.encoders.pooling import POOLINGS, pool
from pipeline.encoders.vector_files import Batch, Vectors, write_vectors


def embed_sentences(
    encoder: GivesStates,
    texts: Sequence[str],
    layers: Layers | str = "last",
    pooling: str = "mean",
) -> Vectors:
    """Return one vector per text: [S, D], or [S, L, D] with layers=all.

    pooling: one of POOLINGS. Puts the encoder into evaluation mode.
    """
    layers = Layers(layers) if isinstance(layers, str) else layers
    vectors = np.empty((len(texts), *layers.shape(encoder)), np.float32)
    if texts:
        for numbers, values in _batches(encoder, _encode(encoder, texts), layers, pooling):
            vectors[numbers] = values
    return vectors


def embed_sentence_file(
    encoder: GivesStates, sentences: Path, out: Path, layers: Layers, pooling: str
) -> tuple[int, int]:
    """Write one vector per line of a file; see `vector_files` for the form.

    Return the number of sentences, and of those that were truncated.
    """
    total = sum(1 for _ in lines_of(sentences))
    cut = 0

    def batches() -> Iterator[Batch]:
        nonlocal cut
        for first, texts in chunks_of(sentences):
            if texts:
                inputs = _encode(encoder, texts)
                cut += inputs.cut
                for numbers, values in _batches(encoder, inputs, layers, pooling):
                    yield first + numbers, values

    write_vectors(out, total, layers.shape(encoder), batches(), None)
    return total, cut


def _encode(encoder: GivesStates, texts: Sequence[str]) -> EncodedInputs:
    return encoder.encode_texts([(text,) for text in texts], encoder.longest or LONGEST)


def _batches(
    encoder: GivesStates, inputs: EncodedInputs, layers: Layers, pooling: str
) -> Iterator[Batch]:
    """Yield (sentence numbers, their vectors) per batch of sentences of similar length."""
    if pooling not in POOLINGS:
        raise UsageError(f"pooling={pooling}: must be one of {', '.join(POOLINGS)}")
    if pooling == "first" and encoder.is_causal:
        raise UsageError(
            "pooling=first: the first unit of this encoder sees nothing after it, so all vectors "
            "would be alike; choose mean"
        )
    encoder.eval()
    device = next(encoder.parameters()).device

    def compute(rows: Ints) -> Batch:
        batch = inputs.batch(rows).to(device)
        if (layers.choice, pooling) == ("last", "first"):
            values = encoder.last_states(batch, batch.firsts_E)
        else:
            values = pool(layers.of(encoder(batch)), batch.lengths, pooling)
        return rows, values.float().cpu().numpy()

    yield from for_each_batch(compute, inputs.lengths, device)
