"""Configuration of the data stages; the YAML groups corpus, tokenizer and examples extend these."""

import json
import unicodedata
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

from omegaconf import II

from data_prep.errors import UsageError
from data_prep.fields import execution, result

SPECIAL_PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")  # in the order of their ids
MOST_COPIES = 1000  # of a document, by its source's weight
DEFAULT_ID_FIELD = "id"  # records may lack it; a field that the user names must be there
WORD_KINDS = ("words", "spaced_words")  # tokenizers whose pieces are whole words


@dataclass
class CorpusConfig:
    """Raw text to document shards (stage `shard`)."""

    paths: Any = execution(
        [], "files, folders or globs to read; their contents, not their places, shape the result"
    )
    sources: dict[str, Any] = execution(
        {}, "name to paths, instead of corpus.paths: parts of the corpus that have weights"
    )
    weights: dict[str, float] = result(
        {}, "source to the expected number of copies of its documents; others have 1"
    )
    temperature: float = result(
        1.0, "share of a source ∝ (its bytes)^this: 0.7 is multilingual BERT's, 0 makes all equal",
        at_least=0.0, at_most=1.0,
    )  # fmt: skip
    documents: str = result(
        "blank_line",
        "what ends a document in .txt files",
        choices=("blank_line", "file", "line"),
    )
    text_field: str = result("text", "field or column with the text (.jsonl, .csv, .parquet)")
    id_field: str = result(
        DEFAULT_ID_FIELD, "field or column with the document's id, where there is one"
    )
    group_field: str | None = result(
        None, "field or column whose documents belong together, such as a patient: held out "
        "together, and never each other's random next sentence"
    )  # fmt: skip
    where: dict[str, str] = result(
        {}, "keep only .jsonl, .csv and .parquet documents whose fields have these values"
    )
    exclude: list[str] = result([], "ids of documents to leave out")
    exclude_file: str | None = execution(None, "file with more such ids, one a line")
    fraction: float = result(
        1.0, "share of documents to keep, chosen by hash, so smaller shares lie inside larger ones",
        at_least=0.0, at_most=1.0,
    )  # fmt: skip
    sentences: str = result(
        "rules", "how documents are cut into sentences", choices=("rules", "lines", "none")
    )
    abbreviations: list[str] = result(
        ["de", "en", "ru", "sv"], "languages whose abbreviations end no sentence (rules)",
        choices=("de", "en", "ru", "sv"),
    )  # fmt: skip
    abbreviations_file: str | None = execution(None, "file with more abbreviations, one a line")
    join_hyphens: bool = result(
        False, "join words that were broken at line ends, as on scanned pages"
    )
    boilerplate_lines: int = result(
        5, "a line that a document has this often is kept once, such as a page's head; 0: never",
        at_least=0,
    )  # fmt: skip
    min_characters: int = result(20, "documents shorter than this are dropped", at_least=0)
    max_characters: int | None = result(
        None, "documents longer than this are dropped, such as lists and logs",
        at_least=1, is_later=True,
    )  # fmt: skip
    min_letters: float = result(
        0.3, "documents with a smaller share of letters are dropped", at_least=0.0, at_most=1.0
    )
    max_repetition: float = result(
        0.6, "documents with a larger share of words that only repeat are dropped",
        at_least=0.0, at_most=1.0,
    )  # fmt: skip
    deduplicate: str = result(
        "paragraphs", "what is dropped where it repeats: whole documents, also single paragraphs",
        choices=("paragraphs", "documents", "none"),
    )  # fmt: skip
    duplicate_characters: int = result(
        50, "shorter paragraphs may repeat: headings, and people who say yes", at_least=0
    )
    near_duplicates: float | None = result(
        None, "drop documents this similar to an earlier one: share of word triples in common, "
        "as MinHash estimates it; 0.8 is usual", at_least=0.3, at_most=1.0,
    )  # fmt: skip
    strict: bool = execution(False, "stop at the first damaged document instead of counting it")
    shard_size: int = result(256_000_000, "bytes a shard file takes at most", at_least=1)
    cache_size: int = execution(
        20_000_000_000, "bytes of cleaned text the store keeps for grown corpora", at_least=0
    )
    workers: int = execution(0, "processes; 0 takes one a core", at_least=0)

    def check(self) -> None:
        """Refuse what would be ignored."""
        if self.deduplicate == "none" and self.near_duplicates is not None:
            raise UsageError(
                f"corpus.near_duplicates={self.near_duplicates}: corpus.deduplicate=none keeps "
                "copies; set corpus.deduplicate=documents"
            )
        if self.max_characters is not None and self.max_characters < self.min_characters:
            raise UsageError(
                f"corpus.max_characters={self.max_characters}: corpus.min_characters="
                f"{self.min_characters} drops all that is shorter, so nothing would be left"
            )
        if self.paths and self.sources:
            raise UsageError(
                "corpus.sources: corpus.paths is given too; name all files in corpus.sources, "
                "and set 'corpus.paths=[]' where a recipe names some"
            )
        for key in ("exclude_file", "abbreviations_file"):
            path = getattr(self, key)
            if path is not None and not Path(path).expanduser().is_file():
                raise UsageError(f"corpus.{key}={path}: there is no such file")
        for name, weight in self.weights.items():
            if name not in self.sources:
                known = ", ".join(self.sources) or "none"
                raise UsageError(
                    f"corpus.weights.{name}={weight}: no source has this name (named: {known}); "
                    f"name its files by corpus.sources.{name}=<paths>"
                )
            if not 0.0 <= weight <= MOST_COPIES:
                raise UsageError(
                    f"corpus.weights.{name}={weight}: must be between 0 and {MOST_COPIES}"
                )
        for name in self.sources:
            if not name or "/" in name:
                raise UsageError(f"corpus.sources.{name}: a source's name is a word without /")
        if self.temperature != 1.0 and len(self.sources) < 2:
            raise UsageError(
                f"corpus.temperature={self.temperature}: weighs sources against each other; "
                "name at least two in corpus.sources"
            )


@dataclass
class TokenizerConfig:
    """Document shards to a vocabulary (stage `tokenizer`)."""

    kind: str = result(
        "wordpiece",
        "how words are cut into pieces; or whole words (ELMo), spaced_words in tokenised text",
        choices=("unigram", "bpe", "wordpiece", *WORD_KINDS),
    )
    vocab_size: int = result(16_000, "pieces in the vocabulary, special ones included", at_least=10)
    source: str | None = execution(
        None, "use this tokenizer instead of training one: a run, or a folder or file"
    )
    lowercase: bool = result(False, "fold case")
    strip_accents: bool = result(False, "drop combining marks; turns å into a")
    byte_fallback: bool = result(
        False, "spell unknown characters as bytes (unigram and bpe) instead of [UNK]"
    )
    split_digits: bool = result(False, "make every digit a piece of its own (unigram and bpe)")
    user_symbols: list[str] = result(
        [], "strings that are always one piece, such as [PATIENT]; recognised in any text"
    )
    min_documents: int = result(
        1, "train on words in at least this many documents, so that no piece is in fewer: a "
        "vocabulary is published with its model", at_least=1,
    )  # fmt: skip
    character_coverage: float = result(
        0.99999, "share of the text's characters the alphabet covers; others become [UNK] or bytes",
        at_least=0.9, at_most=1.0,
    )  # fmt: skip
    workers: int = execution(0, "processes; 0 takes one a core", at_least=0)

    def check(self) -> None:
        """Refuse what would not be followed."""
        trained = TokenizerConfig()
        for key in ("lowercase", "strip_accents", "user_symbols", "min_documents"):
            value, default = getattr(self, key), getattr(trained, key)
            if self.source is not None and value != default:
                raise UsageError(
                    f"tokenizer.{key}={value}: tokenizer.source={self.source} brings its own rules "
                    f"and pieces; set tokenizer.{key}={json.dumps(default)}, also where a recipe "
                    "has set it"
                )
        for key in ("byte_fallback", "split_digits"):
            if self.source is None and self.kind == "wordpiece" and getattr(self, key):
                raise UsageError(
                    f"tokenizer.{key}=true: WordPiece has no such rule; choose "
                    "tokenizer=unigram or tokenizer=bpe"
                )
        for symbol in self.user_symbols:
            self._check_symbol(symbol)

    def _check_symbol(self, symbol: str) -> None:
        marks = [
            mark for mark in unicodedata.normalize("NFD", symbol) if unicodedata.combining(mark)
        ]
        for wrong, why in (
            (
                not symbol or len(symbol.split()) != 1 or "▁" in symbol,
                "white space is between pieces",
            ),
            (self.user_symbols.count(symbol) > 1, "it is named twice"),
            (symbol in SPECIAL_PIECES, "this is a special piece already"),
            (self.lowercase and symbol != symbol.lower(), "tokenizer.lowercase would change it"),
            (self.strip_accents and marks, "tokenizer.strip_accents would change it"),
            (symbol != unicodedata.normalize("NFC", symbol), "it must be composed (NFC)"),
        ):
            if wrong:
                raise UsageError(f"tokenizer.user_symbols: {symbol!r} cannot be a piece: {why}")


@dataclass
class ExamplesConfig:
    """Document shards and a vocabulary to training rows (stage `examples`)."""

    max_seq_length: int = result(
        128, "positions in a row, special pieces included", at_least=8, at_most=32_768
    )
    pairs: str = result(
        "nsp",
        "segment pairs: next sentence (BERT), sentence order (ALBERT) or none (RoBERTa)",
        choices=("nsp", "sop", "none"),
    )
    short_seq_prob: float = result(
        0.1, "share of pairs with a shorter target length", at_least=0.0, at_most=1.0
    )
    masking: str = result(
        "dynamic",
        "masks drawn anew each epoch by the loader, or stored with the examples",
        choices=("static", "dynamic"),
    )
    mask_unit: str = result(
        "token", "what is masked together in training; held-out masks are always 15 % of tokens",
        choices=("token", "word", "span"),
    )  # fmt: skip
    mask_rate: float = result(
        0.15, "share of tokens to predict in training", at_least=0.0, at_most=0.9
    )
    max_masks: int | None = result(
        None, "predictions an example has at most; no cap when not set", at_least=1
    )
    span_length: float = result(
        3.8, "mean words of a masked span (SpanBERT), cut at 10 words", at_least=1.0, at_most=5.5
    )
    duplicates: int = result(
        1, "differently paired (and, static, differently masked) copies of the corpus", at_least=1
    )
    packing: bool = result(
        False, "put several examples in one row; attention stays inside each example"
    )
    packing_window: int = result(1024, "examples considered together when packing", at_least=1)
    chunk_rows: int = result(256, "rows a chunk, the unit that is read and checked", at_least=1)
    shard_size: int = result(256_000_000, "bytes a shard file holds at most", at_least=1)
    seed: int = result(II("seed"), "of pairs, lengths and static masks")
    workers: int = execution(0, "processes; 0 takes one a core", at_least=0)

    def check(self) -> None:
        """Refuse combinations that contradict each other."""
        if self.masking == "dynamic" and self.duplicates > 1 and self.pairs == "none":
            raise UsageError(
                f"examples.duplicates={self.duplicates}: copies would be identical with "
                "examples.masking=dynamic and examples.pairs=none; use examples.masking=static"
            )

    @property
    def masks_differ(self) -> bool:
        """Whether training masks follow another rule than held-out ones, which never change."""
        return bool(self._changed_masks())

    def stored(self) -> Self:
        """The settings that shape the stored rows.

        Dynamic training masks are drawn by the loader and leave no trace here, so all mask rates
        share one set of examples; `training_masks` are part of the pretraining instead.
        """
        return self if self.masking == "static" else replace(self, **MASK_DEFAULTS)

    def training_masks(self) -> dict[str, Any]:
        """The mask settings of a pretraining on these examples, where it draws the masks itself.

        Empty for the default rule, so that earlier pretrainings keep their fingerprints.
        """
        return self._changed_masks() if self.masking == "dynamic" else {}

    def _changed_masks(self) -> dict[str, Any]:
        keys = {key: getattr(self, key) for key in MASK_DEFAULTS}
        return {} if keys == MASK_DEFAULTS else keys


MASK_DEFAULTS: dict[str, Any] = {
    item.name: item.default
    for item in fields(ExamplesConfig)
    if item.name in ("mask_unit", "mask_rate", "max_masks", "span_length")
}
