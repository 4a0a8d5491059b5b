"""Make a tokenizer folder: train a tokenizer on document shards, or copy an existing one.

Reads shards (or `tokenizer.source`); writes the files of `huggingface.write_folder`, and
`statistics.json` with counts and measures on held-out text.
Try it: sesame tokenizer 'corpus.paths=[my_texts/]' tokenizer=wordpiece
"""

import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from data_prep.config import WORD_KINDS, TokenizerConfig
from data_prep.files import write_atomically
from data_prep.passes import Passes
from data_prep.tokenizers.counting import count_words
from data_prep.tokenizers.huggingface import (
    Specials,
    from_sentencepiece,
    from_vocabulary,
    write_folder,
)
from data_prep.tokenizers.measure import measure
from data_prep.tokenizers.merging import WordCounts
from data_prep.tokenizers.sources import read_source, source_files
from data_prep.tokenizers.tokenizer import Tokenizer
from data_prep.tokenizers.train import train_sentencepiece, train_wordpiece
from data_prep.tokenizers.vocabulary import (
    VOCABULARY,
    read_vocabulary,
    take_vocabulary,
    write_words,
)
from data_prep.work_units import LocalPool

log = logging.getLogger(__name__)


def build_tokenizer(
    shards: Path | None, out: Path, config: TokenizerConfig, passes: Passes | None = None
) -> dict[str, Any]:
    """Write the tokenizer to `out` and return its statistics for the manifest.

    shards: may be None if `config.source` is set.
    passes: who makes the work units; by default `config.workers` processes.
    """
    if config.source is not None:
        source = read_source(Path(config.source))
        write_folder(out, source.tokenizer, source.specials, source.sentencepiece_model)
        if Tokenizer.load(out).kind == "words":
            take_vocabulary(source_files(Path(config.source)), source.tokenizer, out)
        return _write_statistics(out, {})
    assert shards is not None, "a tokenizer is trained on shards"
    passes = passes or Passes.below(out, LocalPool.of(config.workers))
    counts = count_words(shards, config, passes)
    _train(counts, out, config)
    statistics = _write_statistics(
        out,
        {
            "words": counts.total,
            "distinct_words": counts.distinct,
            "words_kept_out": counts.kept_out,
            "heldout": measure(shards, out, passes),
        },
    )
    passes.remove()
    return statistics


def with_symbols(config: TokenizerConfig, redacted: Sequence[str]) -> TokenizerConfig:
    """Return the config with the symbols of redacted text among the user's own.

    Unigram and BPE look for symbols in lower-cased text, so there the symbols are in lower case.
    """
    is_folded = config.lowercase and config.kind != "wordpiece"
    symbols = [symbol.lower() if is_folded else symbol for symbol in redacted]
    return replace(config, user_symbols=list(dict.fromkeys([*config.user_symbols, *symbols])))


def warn_of_split_symbols(tokenizer: Tokenizer, redacted: Sequence[str]) -> None:
    """Warn of the symbols of redacted text that a given tokenizer splits into several tokens."""
    encoded = tokenizer.encode_words(redacted)
    split = [
        symbol
        for number, symbol in enumerate(redacted)
        if {symbol, symbol.lower()}.isdisjoint(map(tokenizer.piece, encoded[number].tolist()))
    ]
    if split:
        log.warning(
            "the given tokenizer splits %s into several tokens; to keep them whole, train one on "
            "this corpus, without tokenizer.source and init.source",
            ", ".join(split),
        )


def _train(counts: WordCounts, out: Path, config: TokenizerConfig) -> None:
    specials = Specials()
    case = (config.lowercase, config.strip_accents)
    if config.kind in WORD_KINDS:
        write_words(counts, out, config)
    elif config.kind == "wordpiece":
        vocabulary = train_wordpiece(counts, config)
        tokenizer = from_vocabulary(vocabulary, *case, specials, config.user_symbols)
        write_folder(out, tokenizer, specials, None)
    else:
        model = train_sentencepiece(counts, config)
        write_folder(out, from_sentencepiece(model, *case, specials), specials, model)


def _write_statistics(out: Path, counted: dict[str, Any]) -> dict[str, Any]:
    tokenizer = Tokenizer.load(out)
    statistics = {"kind": tokenizer.kind, "vocab_size": tokenizer.size, **counted}
    if tokenizer.kind == "words":
        statistics["predicted"] = len(read_vocabulary(out / VOCABULARY))
    write_atomically(out / "statistics.json", json.dumps(statistics, indent=2) + "\n")
    return statistics
