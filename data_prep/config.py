"""Configuration of the first data stages: the YAML groups corpus and tokenizer.

Each field states its default, its meaning, its limits, and whether it shapes the result
(`result`) or only the execution (`execution`); see `data_prep.fields`.
"""

import json
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_prep.conditions import condition_of
from data_prep.errors import UsageError
from data_prep.fields import execution, result
from data_prep.quality_rules import PRESETS
from data_prep.symbols import NAME_SYMBOL, SPECIAL_PIECES, compile_redaction, symbol_of

MOST_COPIES = 1000  # largest weight of a source
DEFAULT_ID_FIELD = "id"  # records may lack it; any other field that the user names must exist
# Languages that data_prep.text.languages tells apart, by ISO 639-1 code.
LANGUAGES = (
    "am", "ar", "bg", "bn", "cs", "da", "de", "el", "en", "es", "et", "fa", "fi", "fr", "he", "hi",
    "hr", "hu", "hy", "it", "ja", "ka", "km", "ko", "lo", "lt", "my", "nl", "no", "pl", "pt", "ro",
    "ru", "sr", "sv", "ta", "te", "th", "tr", "uk", "ur", "vi", "zh",
)  # fmt: skip
WORD_KINDS = ("words", "spaced_words")  # tokenizers whose tokens are whole words
# Keys of the corpus that name a file which cleaning reads; its content enters the fingerprint.
LIST_FILES = ("exclude_file", "abbreviations_file", "redact_names_file")


@dataclass
class CorpusConfig:
    """Raw text to document shards (stage `shard`)."""

    paths: Any = execution(
        [],
        "files, folders or globs to read; file contents and names below these paths shape the "
        "result, the paths themselves do not",
        holds_environment=True,
    )
    sources: dict[str, Any] = execution(
        {},
        "instead of corpus.paths: named sources, each with its paths, so that they can have "
        "weights",
        holds_environment=True,
    )
    weights: dict[str, float] = result(
        {}, "expected number of copies of a document in training, per source; 1 for all others"
    )
    temperature: float = result(
        1.0, "exponent that smooths the shares of the sources: share ∝ bytes^temperature; "
        "multilingual BERT has 0.7, 0 makes all shares equal",
        at_least=0.0, at_most=1.0,
    )  # fmt: skip
    documents: str = result(
        "blank_line",
        "what ends a document in .txt files: a blank line, the end of the file, or every line",
        choices=("blank_line", "file", "line"),
    )
    text_field: str = result(
        "text", "field or column with the text (.json, .jsonl, .csv, .tsv, .parquet, .arrow)"
    )
    id_field: str = result(
        DEFAULT_ID_FIELD, "field or column with the document's id; records may lack the default one"
    )
    group_field: str | None = result(
        None, "field or column that names a document's group, such as a patient; a group is held "
        "out as a whole, and random next sentences come from other groups"
    )  # fmt: skip
    where: dict[str, str] = result(
        {}, "keep only records (.json, .jsonl, .csv, .tsv, .parquet, .arrow) whose fields have "
        "these values, or lie in these ranges of numbers or dates: '>=3', '3..5', "
        "'2019-01..2020-06'"
    )  # fmt: skip
    exclude: list[str] = result([], "ids of documents to leave out")
    exclude_file: str | None = execution(
        None, "file with more ids to leave out, one per line", holds_environment=True
    )
    fraction: float = result(
        1.0, "share of documents to keep, chosen by hash; a smaller share is a subset of a larger",
        at_least=0.0, at_most=1.0,
    )  # fmt: skip
    languages: Any = result(
        "auto",
        "auto identifies the language of each document and uses the abbreviations of that language "
        "only; a list of codes such as [sv, de] also drops all other documents; none identifies "
        "nothing",
        choices=("auto", "none", *LANGUAGES),
        is_later=True,
    )
    sentences: str = result(
        "rules",
        "sentence splitting: by rules, one sentence per line, or none (whole paragraphs)",
        choices=("rules", "lines", "none"),
    )
    abbreviations: list[str] = result(
        ["de", "en", "ru", "sv"], "languages whose abbreviations do not end a sentence; all of "
        "them apply to documents of undetermined language; documents identified as cs, da, es, fi, "
        "fr, it, nl, no, pl or pt use a list of their language, unless this is empty; for "
        "corpus.sentences=rules",
        choices=("de", "en", "ru", "sv"),
    )  # fmt: skip
    abbreviations_file: str | None = execution(
        None, "file with more abbreviations, one per line", holds_environment=True
    )
    redact: list[str] = result(
        [], "personal data to replace with the symbols [EMAIL], [PHONE], [ID] and [IP], which are "
        "tokens of the vocabulary",
        choices=("email", "phone", "id", "ip"), is_later=True,
    )  # fmt: skip
    redact_names_file: str | None = execution(
        None, "file with names to replace with [NAME], one per line", holds_environment=True
    )
    redact_patterns: dict[str, str] = result(
        {}, "regular expressions (RE2) of other text to replace, by symbol: "
        "{CASE: 'K-[0-9]+'} makes [CASE]", is_later=True,
    )  # fmt: skip
    decontaminate: list[str] = execution(
        [], "benchmarks whose development and test texts are left out of the corpus: tasks of "
        "conf/task (sst2:<folder> where the task names no folder) or files",
        holds_environment=True,
    )  # fmt: skip
    decontaminate_words: int = result(
        13, "words in a row that a benchmark and the corpus must share, after GPT-3; in scripts "
        "without spaces, characters",
        at_least=5, is_later=True,
    )  # fmt: skip
    decontaminate_unit: str = result(
        "paragraphs", "what is left out: the paragraphs that share words, or their documents",
        choices=("paragraphs", "documents"), is_later=True,
    )  # fmt: skip
    join_hyphens: bool = result(
        False, "join words that are hyphenated at line ends, as on scanned pages"
    )
    boilerplate_lines: int = result(
        5, "a line that occurs this often in a document, such as a page header, is kept once; "
        "0 keeps all", at_least=0,
    )  # fmt: skip
    min_characters: int = result(20, "documents shorter than this are dropped", at_least=0)
    max_characters: int | None = result(
        None, "documents longer than this, such as lists and logs, are dropped",
        at_least=1, is_later=True,
    )  # fmt: skip
    min_letters: float = result(
        0.3, "documents with a smaller share of letters are dropped", at_least=0.0, at_most=1.0
    )
    max_repetition: float = result(
        0.6, "documents with a larger share of repeated five-word sequences are dropped",
        at_least=0.0, at_most=1.0,
    )  # fmt: skip
    filters: list[str] = result(
        [], "published quality filters that drop documents of web text: gopher (Rae et al., 2021), "
        "fineweb (Penedo et al., 2024)",
        choices=tuple(PRESETS), is_later=True,
    )  # fmt: skip
    thresholds: dict[str, Any] = result(
        {}, "other thresholds for the rules of corpus.filters, such as {gopher_min_words: 20}; "
        "null turns a rule off", is_later=True,
    )  # fmt: skip
    hook: str | None = result(
        None, "a Python function of yours by dotted path, such as my_module.keep, that sees every "
        "cleaned document and may change or drop it; its module's file enters the fingerprint",
        is_later=True,
    )  # fmt: skip
    min_confidence: float | None = result(
        None, "scanned documents (ALTO, PAGE, METS) are dropped if the mean confidence of their "
        "words is smaller; those that state none are kept",
        at_least=0.0, at_most=1.0, is_later=True,
    )  # fmt: skip
    deduplicate: str = result(
        "paragraphs", "drop repeated text: repeated documents and paragraphs (paragraphs), only "
        "repeated documents (documents), or nothing (none)",
        choices=("paragraphs", "documents", "none"),
    )  # fmt: skip
    duplicate_characters: int = result(
        50, "paragraphs shorter than this, such as headings and short answers, may repeat",
        at_least=0,
    )  # fmt: skip
    near_duplicates: float | None = result(
        None, "drop documents at least this similar to an earlier one: Jaccard similarity of word "
        "triples, estimated by MinHash; 0.8 is usual; not set: keep them",
        at_least=0.3, at_most=1.0,
    )  # fmt: skip
    near_duplicates_over: str = result(
        "words", "what corpus.near_duplicates compares: word triples, or runs of seven letters "
        "(characters), which finds reprints despite OCR errors; 0.5 is usual there",
        choices=("words", "characters"), is_later=True,
    )  # fmt: skip
    strict: bool = execution(False, "stop at the first damaged document instead of counting it")
    shard_size: int = result(256_000_000, "largest size of a shard file in bytes", at_least=1)
    cache_size: int = execution(
        20_000_000_000, "bytes of cleaned text that the store keeps, so that a corpus that has "
        "grown cleans only its new files", at_least=0,
    )  # fmt: skip
    workers: int = execution(0, "processes; 0 takes one per core", at_least=0)

    def check(self) -> None:
        """Raise UsageError for keys that contradict each other or name missing files."""
        for key, paths in {"paths": self.paths, **_prefixed("sources", self.sources)}.items():
            given = paths if isinstance(paths, list) else [paths]
            if not all(isinstance(path, str) for path in given):
                raise UsageError(
                    f"corpus.{key}={paths}: must be a path or a list of paths; write a number as "
                    "a path by ./ before it"
                )
        if self.deduplicate == "none" and self.near_duplicates is not None:
            raise UsageError(
                f"corpus.near_duplicates={self.near_duplicates}: corpus.deduplicate=none keeps "
                "copies; set corpus.deduplicate=documents or corpus.near_duplicates=null"
            )
        if self.near_duplicates is None and self.near_duplicates_over != "words":
            raise UsageError(
                f"corpus.near_duplicates_over={self.near_duplicates_over}: "
                "corpus.near_duplicates is not set; set it to a similarity, such as 0.5"
            )
        if self.max_characters is not None and self.max_characters < self.min_characters:
            raise UsageError(
                f"corpus.max_characters={self.max_characters}: corpus.min_characters="
                f"{self.min_characters} drops all shorter documents, so nothing would be left; "
                "raise the one or lower the other"
            )
        if isinstance(self.languages, list) and {"auto", "none"} & set(self.languages):
            raise UsageError(
                f"corpus.languages={self.languages}: auto and none stand alone; write "
                "corpus.languages=auto, or a list of codes such as [sv, de]"
            )
        if self.paths and self.sources:
            raise UsageError(
                "corpus.sources: corpus.paths is given too; name all files in corpus.sources, "
                "and set 'corpus.paths=[]' if a recipe sets corpus.paths"
            )
        for name, value in self.where.items():
            condition_of(f"corpus.where.{name}", value)
        self._check_thresholds()
        for name, pattern in self.redact_patterns.items():
            compile_redaction(name, pattern)
        for key in LIST_FILES:
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
                raise UsageError(f"corpus.sources.{name}: the name of a source must not contain /")
        if self.temperature != 1.0 and len(self.sources) < 2:
            raise UsageError(
                f"corpus.temperature={self.temperature}: it changes the shares of sources; "
                "name at least two in corpus.sources"
            )

    def _check_thresholds(self) -> None:
        rules = [rule for preset in self.filters for rule in PRESETS[preset]]
        for rule, threshold in self.thresholds.items():
            key = f"corpus.thresholds.{rule}={threshold}"
            if rule not in rules:
                chosen = ", ".join(self.filters) or "none"
                raise UsageError(
                    f"{key}: no rule of corpus.filters ({chosen}) has this name; rules: "
                    f"{', '.join(rules) or 'none'}"
                )
            if isinstance(threshold, bool) or not isinstance(threshold, int | float | None):
                raise UsageError(f"{key}: must be a number, or null to turn the rule off")

    def quality_thresholds(self) -> dict[str, float]:
        """Return the thresholds of the chosen quality filters by rule."""
        published = {rule: value for name in self.filters for rule, value in PRESETS[name].items()}
        chosen = {**published, **self.thresholds}
        return {rule: value for rule, value in chosen.items() if value is not None}

    @property
    def redaction_symbols(self) -> list[str]:
        """The symbols that redaction writes; the tokenizer keeps them whole."""
        names = [] if self.redact_names_file is None else [NAME_SYMBOL]
        written = [*map(symbol_of, [*self.redact, *self.redact_patterns]), *names]
        return list(dict.fromkeys(written))


@dataclass
class TokenizerConfig:
    """Document shards to a vocabulary (stage `tokenizer`)."""

    kind: str = result(
        "wordpiece",
        "subword algorithm; or whole words (ELMo): words, or spaced_words for text that is already "
        "tokenised",
        choices=("unigram", "bpe", "wordpiece", *WORD_KINDS),
    )
    vocab_size: int = result(
        16_000, "tokens in the vocabulary, including special tokens", at_least=10
    )
    source: str | None = execution(
        None,
        "use this tokenizer instead of training one: a run, a folder or a file",
        holds_environment=True,
    )
    lowercase: bool = result(False, "convert text to lower case")
    strip_accents: bool = result(False, "remove combining marks: å becomes a")
    byte_fallback: bool = result(
        False, "encode unknown characters as bytes instead of [UNK]; for unigram and bpe"
    )
    split_digits: bool = result(False, "make every digit a token of its own; for unigram and bpe")
    user_symbols: list[str] = result(
        [], "strings that are always one token, such as [PATIENT]; recognised in any text"
    )
    min_documents: int = result(
        1, "train only on words that occur in at least this many documents, or groups where "
        "corpus.group_field names them; for privacy, since a vocabulary is published with its "
        "model", at_least=1,
    )  # fmt: skip
    character_coverage: float = result(
        0.99999, "share of the text's characters that the alphabet covers; the rest becomes [UNK] "
        "or bytes", at_least=0.9, at_most=1.0,
    )  # fmt: skip
    workers: int = execution(0, "processes; 0 takes one per core", at_least=0)

    def check(self) -> None:
        """Raise UsageError for keys that the tokenizer could not follow."""
        trained = TokenizerConfig()
        for key in ("lowercase", "strip_accents", "user_symbols", "min_documents"):
            value, default = getattr(self, key), getattr(trained, key)
            if self.source is not None and value != default:
                raise UsageError(
                    f"tokenizer.{key}={value}: tokenizer.source={self.source} brings its own rules "
                    f"and tokens; set tokenizer.{key}={json.dumps(default)}, also if a recipe sets "
                    "another value"
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
                "a token contains no white space",
            ),
            (self.user_symbols.count(symbol) > 1, "it is named twice"),
            (symbol in SPECIAL_PIECES, "it is already a special token"),
            (self.lowercase and symbol != symbol.lower(), "tokenizer.lowercase would change it"),
            (self.strip_accents and marks, "tokenizer.strip_accents would change it"),
            (symbol != unicodedata.normalize("NFC", symbol), "it must be composed (NFC)"),
        ):
            if wrong:
                raise UsageError(f"tokenizer.user_symbols: {symbol!r} cannot be a token: {why}")


def _prefixed(prefix: str, values: dict[str, Any]) -> dict[str, Any]:
    return {f"{prefix}.{key}": value for key, value in values.items()}
