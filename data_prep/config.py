"""Configuration of the data stages; the YAML groups corpus, tokenizer and examples extend these."""

from dataclasses import dataclass
from typing import Any

from omegaconf import II

from data_prep.errors import UsageError
from data_prep.fields import execution, result

WORD_KINDS = ("words", "spaced_words")  # tokenizers whose pieces are whole words


@dataclass
class CorpusConfig:
    """Raw text to document shards (stage `shard`)."""

    paths: Any = execution(
        [], "files, folders or globs to read; their contents, not their places, shape the result"
    )
    documents: str = result(
        "blank_line",
        "what ends a document in .txt files",
        choices=("blank_line", "file", "line"),
    )
    text_field: str = result("text", "field of .jsonl and column of .csv files that holds the text")
    id_field: str = result("id", "field or column with the document's id, where there is one")
    where: dict[str, str] = result(
        {}, "keep only .jsonl and .csv documents whose fields have these values"
    )
    exclude: list[str] = result([], "ids of documents to leave out")
    fraction: float = result(
        1.0, "share of documents to keep, chosen by hash, so smaller shares lie inside larger ones",
        at_least=0.0, at_most=1.0,
    )  # fmt: skip
    sentences: str = result(
        "rules", "how documents are cut into sentences", choices=("rules", "lines", "none")
    )
    min_characters: int = result(20, "documents shorter than this are dropped", at_least=0)
    min_letters: float = result(
        0.3, "documents with a smaller share of letters are dropped", at_least=0.0, at_most=1.0
    )
    deduplicate: bool = result(True, "drop documents whose cleaned text has been seen before")
    strict: bool = execution(False, "stop at the first damaged document instead of counting it")
    shard_size: int = result(256_000_000, "bytes a shard file takes at most", at_least=1)
    workers: int = execution(0, "processes; 0 takes one a core", at_least=0)


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
    character_coverage: float = result(
        0.99999, "share of the text's characters the alphabet covers; others become [UNK] or bytes",
        at_least=0.9, at_most=1.0,
    )  # fmt: skip
    workers: int = execution(0, "processes; 0 takes one a core", at_least=0)

    def check(self) -> None:
        """Refuse settings that a given tokenizer would not follow."""
        if self.source is not None and (self.lowercase or self.strip_accents):
            raise UsageError(
                f"tokenizer.source={self.source}: brings its own normalisation; leave out "
                "tokenizer.lowercase and tokenizer.strip_accents"
            )


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
    mask_unit: str = result("token", "what is masked together", choices=("token", "word", "span"))
    mask_rate: float = result(0.15, "share of pieces to predict", at_least=0.0, at_most=0.9)
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
