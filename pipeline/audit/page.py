"""The page of `sesame audit`: groups, files, network, vocabulary, canaries and memory of a run."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipeline.audit.canaries import Found
from pipeline.audit.rarity import Rarity
from pipeline.pages.blocks import Block, Column, Fact, Facts, Note, Section, Table
from pipeline.pages.page import Page, render
from pipeline.pages.wording import count, share

if TYPE_CHECKING:
    from pipeline.audit.memory import Memory, Restored

# What the files of a stage hold of the text.
CONTENT = {
    "shard": "the text itself",
    "tokenizer": "words of the text, as vocabulary entries",
    "vectors": "words of the text, with vectors",
    "examples": "the text, as token ids",
    "pretrain": "weights and numbers",
    "export": "weights, and the vocabulary entries",
    "finetune": "predictions for the task's own files; weights if kept",
    "model": "weights, the names of labels, and the tokenizer's vocabulary",
    "layers": "numbers",
    "report": "numbers; text only with share.text=true",
}
HOLDS_TEXT = ("shard", "examples")  # where a canary belongs
SIGNIFICANT = 3.0  # standard errors from chance


@dataclass(frozen=True)
class Kept:
    """One output of the run."""

    reference: str
    folder: str
    bytes: int

    @property
    def stage(self) -> str:
        return self.reference.partition("/")[0]


@dataclass(frozen=True)
class Audit:
    """Everything that the page states."""

    run: str
    outputs: Sequence[Kept]
    documents: dict[str, Any]  # counts of the shard stage
    groups: dict[str, int]  # counts of groups by split; empty if the corpus names none
    tracking: str  # backend and mode of the pretraining
    offline: bool  # the Hugging Face hub cannot be reached by this command
    rarity: Rarity | None  # None: no tokenizer
    searched: int  # canaries that were searched; 0: none were given
    found: Sequence[Found]
    memory: "Memory | None"  # None: no BERT to test


def write_page(audit: Audit) -> Page:
    """Render the page."""
    sections = [
        Section("groups", "Groups and splits", _groups(audit)),
        Section("files", "What each folder holds", [_files(audit)]),
        Section("network", "Network", [_network(audit)]),
        Section("vocabulary", "Rare vocabulary entries", _vocabulary(audit)),
        Section("canaries", "Canaries", _canaries(audit)),
        Section("memory", "Does the model remember its text?", _memory(audit)),
    ]
    lead = "What this run could give away about its text. Counts only; no text is shown."
    return render("Audit", audit.run, lead, Facts(_headline(audit)), sections)


def verdicts(audit: Audit) -> list[tuple[str, bool]]:
    """Return one sentence per finding, and True if someone should look at it."""
    found = []
    if not audit.groups:
        found.append(
            ("The corpus names no groups, so patients or authors may be in both splits.", True)
        )
    elif audit.groups.get("without"):
        found.append((f"{count(audit.groups['without'])} documents have no group.", True))
    else:
        found.append(("No group is in both splits.", False))
    if audit.rarity is not None:
        rare = int(audit.rarity.rare_V.sum())
        found.append((
            f"{count(rare)} vocabulary entries occur in fewer than {audit.rarity.limit} "
            f"{'groups' if audit.groups else 'documents'}.", rare > 0,
        ))  # fmt: skip
    outside = {each.canary for each in audit.found if each.output.split("/")[0] not in HOLDS_TEXT}
    if audit.searched:
        found.append((
            f"{len(outside)} of {audit.searched} canaries are in files other than the text's own.",
            bool(outside),
        ))  # fmt: skip
    if audit.memory is not None:
        is_clear = abs(audit.memory.membership - 0.5) > SIGNIFICANT * audit.memory.error
        found.append((
            "Training examples can be told from held-out ones by their loss in "
            f"{share(audit.memory.membership)} of pairs (chance 50 %).", is_clear,
        ))  # fmt: skip
    return found


def _headline(audit: Audit) -> list[Fact]:
    looked = verdicts(audit)
    to_see = sum(is_open for _, is_open in looked)
    return [
        Fact("findings", str(len(looked))),
        Fact("to look at", str(to_see)),
        Fact("outputs", str(len(audit.outputs))),
        Fact("documents kept", count(audit.documents.get("kept", 0))),
    ]


def _groups(audit: Audit) -> list[Block]:
    sentences = " ".join(sentence for sentence, _ in verdicts(audit)[:1])
    rows = [(name, count(number)) for name, number in audit.groups.items()]
    dropped = audit.documents.get("dropped", {})
    blocks: list[Block] = [Note(sentences)]
    if rows:
        blocks.append(Table("Groups", [Column("split"), Column("groups", True)], rows))
    blocks.append(
        Table(
            "Documents",
            [Column("what happened"), Column("documents", True)],
            [
                ("read", count(audit.documents.get("read", 0))),
                ("kept", count(audit.documents.get("kept", 0))),
                *((f"dropped: {reason}", count(number)) for reason, number in dropped.items()),
            ],
        )
    )
    return blocks


def _files(audit: Audit) -> Block:
    rows = [
        (each.reference, CONTENT.get(each.stage, "unknown"), each.folder, f"{each.bytes:,}")
        for each in audit.outputs
    ]
    columns = [Column("output"), Column("holds"), Column("folder"), Column("bytes", True)]
    return Table(
        "Nothing of a run is written outside its store, except by output= keys", columns, rows
    )


def _network(audit: Audit) -> Block:
    hub = "is switched off" if audit.offline else "may be contacted (HF_HUB_OFFLINE is 0)"
    return Note(
        f"Tracking of the pretraining: {audit.tracking}. The Hugging Face hub {hub}. No other part "
        "of Sesame opens a connection to another host, except ranks to each other and sbatch."
    )


def _vocabulary(audit: Audit) -> list[Block]:
    if audit.rarity is None:
        return [Note("The run has no tokenizer of its own.")]
    unit = "groups" if audit.groups else "documents"
    rows = [(str(number), count(entries)) for number, entries in audit.rarity.by_groups()]
    return [
        Note(
            "An export carries its vocabulary. An entry that occurs in few "
            f"{unit} may be a name. tokenizer.min_documents={audit.rarity.limit} leaves such "
            "entries out when the vocabulary is trained. Special tokens and single characters are "
            "not counted."
        ),
        Table(
            "Entries by frequency", [Column(unit, True), Column("vocabulary entries", True)], rows
        ),
    ]


def _canaries(audit: Audit) -> list[Block]:
    if not audit.searched:
        return [
            Note(
                "None were searched. Plant strings in the corpus, write them to a file, one per "
                "line, and give canaries=<file>."
            )
        ]
    if not audit.found:
        return [Note(f"None of {audit.searched} canaries was found in any file.")]
    rows = [
        (str(each.canary), each.output, str(each.files),
         "the text's own" if each.output.split("/")[0] in HOLDS_TEXT else "look at it")
        for each in audit.found
    ]  # fmt: skip
    columns = [Column("line", True), Column("output"), Column("files or chunks", True), Column("")]
    return [Table(f"Found, of {audit.searched} canaries", columns, rows)]


def _memory(audit: Audit) -> list[Block]:
    memory = audit.memory
    if memory is None:
        return [Note("Not tested: the run has no exported BERT. ELMo is not tested.")]
    chance = f"50 % ± {share(memory.error)}"
    rows = [
        ("training", _restored(memory.train), count(memory.train.tokens)),
        ("held-out", _restored(memory.heldout), count(memory.heldout.tokens)),
    ]
    return [
        Note(
            f"Membership: of {memory.examples[0]} training and {memory.examples[1]} held-out "
            f"examples, the training example has the lower loss in {share(memory.membership)} of "
            f"pairs; chance gives {chance}."
        ),
        Table(
            "Extraction: rare tokens masked and restored by the model's first guess",
            [Column("text"), Column("restored", True), Column("tokens", True)],
            rows,
        ),
    ]


def _restored(restored: "Restored") -> str:
    return share(restored.share) if restored.tokens else "none to restore"
