"""The sections on data: corpus, tokenizer and examples, from the stages' counts."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pipeline.pages import charts
from pipeline.pages.blocks import (
    Block,
    Column,
    Examples,
    Fact,
    Facts,
    Figure,
    Figures,
    Heading,
    Section,
    Table,
)
from pipeline.pages.wording import count, named, plain, share, short
from pipeline.report.collect import Collected, FinishedOutput
from pipeline.report.strata import document_tables, vocabulary_tables

BINS = 32
MOST_LANGUAGES = 5  # named among the facts
Measure = tuple[str, Callable[[dict[str, Any]], str]]
REASONS = {
    "fraction": "outside corpus.fraction",
    "where": "not chosen by corpus.where",
    "decontaminate": "in a benchmark of corpus.decontaminate",
    "decontaminated": "without paragraphs of benchmarks",
    "exclude": "named in corpus.exclude",
    "min_characters": "below corpus.min_characters",
    "max_characters": "above corpus.max_characters",
    "min_letters": "below corpus.min_letters",
    "duplicate_paragraphs": "of repeated paragraphs only",
}
PARAGRAPH_REASONS = {
    "duplicate": "repeats an earlier one",
    "document": "its document was dropped",
}
SPLITS = {"train": "training", "heldout": "held out"}


def corpus_section(collected: Collected) -> Section | None:
    """Return the section on documents read, kept and dropped, by reason."""
    sharded = collected.of("shard")
    if not sharded:
        return None
    blocks: list[Block] = []
    for number, made in enumerate(sharded, 1):
        blocks += _heading(made, sharded)
        blocks += _corpus(made, number)
    return Section("corpus", "Corpus", blocks)


def tokenizer_section(collected: Collected) -> Section | None:
    """Return the section on the vocabulary and how well it fits held-out text."""
    tokenizers = collected.of("tokenizer")
    if not tokenizers:
        return None
    blocks: list[Block] = []
    for made in tokenizers:
        blocks += _heading(made, tokenizers)
        blocks.append(Facts(_tokenizer_facts(made.counts)))
        blocks += vocabulary_tables(made.counts)
    return Section("tokenizer", "Tokenizer", blocks)


def examples_section(collected: Collected, share_text: bool) -> Section | None:
    """Return the section on rows, lengths, labels and masks; examples only with share.text."""
    every = collected.of("examples")
    if not every:
        return None
    tokenizers = {made.reference: made.path for made in collected.of("tokenizer")}
    blocks: list[Block] = []
    for number, made in enumerate(every, 1):
        statistics = made.json("statistics.json")
        length = made.config["examples"]["max_seq_length"]
        is_masked = _is_masked(statistics)
        blocks += _heading(made, every, f"rows of {length}" if is_masked else "streams")
        blocks += _examples(made, number, statistics, is_masked)
        vocabulary = tokenizers.get(made.manifest["upstream"].get("tokenizer", ""))
        if share_text and vocabulary:
            from pipeline.report.decoded import decode_examples

            blocks.append(Examples(decode_examples(made.path, vocabulary), is_masked))
    return Section("examples", "Examples", blocks)


def _is_masked(statistics: dict[str, Any]) -> bool:
    """Return True if rows have masks: held-out rows store theirs, streams (ELMo) have none."""
    held_out = statistics["heldout"]
    return bool(held_out["predictions"] or not held_out["rows"])


def _heading(
    made: FinishedOutput, among: Sequence[FinishedOutput], told_by: str = ""
) -> list[Block]:
    if len(among) < 2:
        return []
    fingerprint = made.manifest["fingerprint"][:8]
    title = named(made.run, made.label.removesuffix(fingerprint).rstrip("/") or made.stage)
    return [Heading(", ".join(part for part in (title, told_by, fingerprint) if part))]


def _tokenizer_facts(counts: dict[str, Any]) -> list[Fact]:
    facts = [Fact("kind", counts["kind"]), Fact("pieces", count(counts["vocab_size"]))]
    if "words" in counts:  # absent for a tokenizer that was not trained here
        facts.append(Fact("words trained on", short(counts["words"])))
        facts.append(Fact("distinct words", short(counts["distinct_words"])))
    held_out = counts.get("heldout", {})
    for key, name, shown, note in (
        ("fertility", "fertility", "{:.2f}".format, "pieces per word, held out"),
        ("unknown_rate", "unknown pieces", share, "held out"),
        ("coverage", "characters covered", share, "held out"),
        ("changed_characters", "characters changed", share, "by case folding and normalising"),
    ):
        if held_out.get(key) is not None:
            facts.append(Fact(name, shown(held_out[key]), note))
    return facts


def _examples(
    made: FinishedOutput, number: int, statistics: dict[str, Any], is_masked: bool
) -> list[Block]:
    columns = (Column(""), *(Column(name, True) for name in SPLITS.values()))
    measures = _measures(made.config["examples"]) if is_masked else STREAMED
    rows = [[name, *(show(statistics[split]) for split in SPLITS)] for name, show in measures]
    lengths = _lengths(f"lengths-{number}", statistics["train"]["lengths"])
    caption = "Rows, labels and masks" if is_masked else "Sentences of the streams"
    return [Table(caption, columns, rows), Figures([lengths])]


# Streams of sentences (ELMo) have no padding, no pairs and no masks.
STREAMED: Sequence[Measure] = (
    ("sentences", lambda each: count(each["rows"])),
    ("tokens", lambda each: short(each["tokens"])),
    ("tokens per sentence", lambda each: f"{each['mean_tokens_per_row']:.1f}"),
)


def _measures(settings: dict[str, Any]) -> list[Measure]:
    packing = "packed" if settings["packing"] else "unpacked"
    measures: list[Measure] = [
        ("rows", lambda each: count(each["rows"])),
        ("examples", lambda each: count(each["examples"])),
        ("tokens", lambda each: short(each["tokens"])),
        ("tokens per row", lambda each: f"{each['mean_tokens_per_row']:.1f}"),
        ("positions in use", lambda each: share(each["efficiency"][packing])),
    ]
    if settings["pairs"] != "none":
        wrong = "swapped" if settings["pairs"] == "sop" else "random"
        measures += [
            (f"pairs {wrong}", lambda each: share(each["other"] + each["forced"], _pairs(each))),
            (
                f"pairs {wrong} because no next sentence was left",
                lambda each: share(each["forced"], _pairs(each)),
            ),
        ]
    measures += [
        ("pieces to predict", _predicted),
        ("of these masked", lambda each: share(each["masked"], each["predictions"])),
        ("of these replaced", lambda each: share(each["replaced"], each["predictions"])),
        ("of these kept", lambda each: share(each["kept"], each["predictions"])),
    ]
    return measures


def _pairs(each: dict[str, Any]) -> int:
    return int(each["next"] + each["other"] + each["forced"])


def _predicted(each: dict[str, Any]) -> str:
    """Return the share of stored masks; dynamic masks are not stored."""
    stored = each["predictions"]
    return share(stored, each["tokens"]) if stored else "dynamic (not stored)"


def _lengths(name: str, lengths: Sequence[int]) -> Figure:
    """Return a histogram of the lengths of training examples, in tokens."""
    allowed = len(lengths) - 1
    longest = max((length for length, number in enumerate(lengths) if number), default=allowed)
    width = -(-(longest + 1) // BINS)
    bins = [
        (low, low + width, sum(lengths[low : low + width])) for low in range(0, longest + 1, width)
    ]
    title = "Lengths of training examples"
    svg = charts.histogram(name, title, bins, x_title="pieces per example")
    return Figure(name, title, f"In pieces; a row has at most {allowed}.", svg)


def _corpus(made: FinishedOutput, number: int) -> list[Block]:
    counts, statistics = made.counts, made.json("statistics.json")
    columns = (Column(""), *(Column(name, True) for name in SPLITS.values()))
    kinds = ["sections", "sentences", "words", "bytes"]
    if "groups" in counts:
        kinds.insert(0, "groups")
    rows = [[kind, *(count(counts[kind][split]) for split in SPLITS)] for kind in kinds]
    figures = [
        _sizes(f"corpus-{number}-{unit}", unit, statistics[f"document_{unit}"])
        for unit in ("words", "sentences")
    ]
    return [
        Facts([*_corpus_facts(counts), *_group_facts(counts, made.config["corpus"])]),
        Table("Kept text", columns, rows),
        *_reasons(counts),
        *document_tables(counts, REASONS),
        Figures(figures),
    ]


def _corpus_facts(counts: dict[str, Any]) -> list[Fact]:
    documents, words = counts["documents"], sum(counts["words"].values())
    read, kept = documents["read"], documents["kept"]
    facts = [
        Fact("documents read", count(read), f"from {count(counts['files'])} files"),
        Fact("documents kept", count(kept), share(kept, read)),
        Fact("words", short(words)),
        Fact("words per document", short(words / kept)),
        Fact("held out", share(counts["words"]["heldout"], words), "of words"),
    ]
    if paragraphs := counts.get("paragraphs"):  # absent in shards of an older format
        read, kept = paragraphs["read"], paragraphs["kept"]
        facts.append(Fact("paragraphs kept", count(kept), f"{share(kept, read)} of {count(read)}"))
    if languages := counts.get("languages"):
        by_size = sorted(languages.items(), key=lambda item: (-item[1], item[0]))
        most = ", ".join(f"{code} {count(number)}" for code, number in by_size[:MOST_LANGUAGES])
        facts.append(Fact("languages", count(len(languages)), f"{most} documents"))
    if redacted := counts.get("redacted"):
        what = ", ".join(f"{symbol.lower()} {count(number)}" for symbol, number in redacted.items())
        facts.append(Fact("redacted", count(sum(redacted.values())), what))
    if documents["broken_files"]:
        facts.append(Fact("files broken off", count(documents["broken_files"])))
    if unread := counts.get("unread_files"):
        why = ", ".join(f"{plain(reason)} {count(number)}" for reason, number in unread.items())
        facts.append(Fact("files not read", count(sum(unread.values())), why))
    return facts


def _group_facts(counts: dict[str, Any], corpus: dict[str, Any]) -> list[Fact]:
    """Return facts about groups in the splits; empty without corpus.group_field."""
    if corpus.get("group_field") is None:
        return []
    groups = counts.get("groups")
    if groups is None:  # older versions did not count groups
        return [Fact("groups", "not counted", "by the version that made this: groups may be split")]
    return [
        Fact("groups in both splits", "0", f"of {count(groups['train'] + groups['heldout'])}"),
        Fact("documents without a group", count(groups["documents_without"])),
    ]


def _reasons(counts: dict[str, Any]) -> Iterator[Table]:
    """Yield tables of dropped and repaired text by reason, most frequent first."""
    for kind, key, meanings in (
        ("documents", "dropped", REASONS),
        ("documents", "repaired", REASONS),
        ("paragraphs", "dropped", PARAGRAPH_REASONS),
    ):
        reasons = counts.get(kind, {}).get(key, {})
        ordered = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
        if not ordered:
            continue
        read = counts[kind]["read"]
        columns = (Column("reason"), Column(kind, True), Column("share of read", True))
        rows = [
            [
                meanings.get(reason, plain(reason)),
                count(number),
                share(number, read),
            ]
            for reason, number in ordered
        ]
        most = ordered[0][1] or 1
        bars = [number / most for _, number in ordered]
        yield Table(f"{kind} {key}".capitalize(), columns, rows, bars)


def _sizes(name: str, unit: str, histogram: dict[str, list[int]]) -> Figure:
    """Return a histogram of document sizes in words or sentences, in doubling bins."""
    bins = [
        (low, 2 * low, number)
        for low, number in zip(histogram["from"], histogram["documents"], strict=True)
    ]
    title = f"Documents by {unit}"
    svg = charts.histogram(name, title, bins, x_title=f"{unit} per document", doubling=True)
    return Figure(name, title, "In bins that double.", svg)
