"""`sesame audit`: write a page of what a run could give away about its text.

Reads the run's outputs; writes one page. Try it: sesame audit demo
"""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape

from data_prep.errors import UsageError
from data_prep.progress import console
from data_prep.tokenizers import Tokenizer
from pipeline.audit.canaries import Found, as_found, read_canaries, search_ids, search_text
from pipeline.audit.page import Audit, Kept, verdicts, write_page
from pipeline.audit.rarity import Rarity, count_groups
from pipeline.commands.arguments import Arguments, take_own
from pipeline.config.compose import compose_config
from pipeline.store.outputs import Output, Store, bytes_and_files
from pipeline.store.runs import Runs
from pipeline.training.job import FILE as JOB

if TYPE_CHECKING:
    from pipeline.audit.memory import Memory

OWN = {"canaries": "", "k": "5", "rows": "256", "output": "audit"}


def audit(arguments: Arguments) -> None:
    """Write the page; print each finding."""
    own, overrides = take_own(arguments.overrides, OWN)
    limit, rows = (_number(key, own[key]) for key in ("k", "rows"))
    if len(arguments.words) != 1:
        raise UsageError("audit: name one run, such as sesame audit demo")
    canaries = read_canaries(Path(own["canaries"])) if own["canaries"] else []
    out = Path(own["output"])
    if out.is_file() or not out.resolve().parent.is_dir():
        raise UsageError(f"output={out}: must be a new or existing folder inside an existing one")
    store = Store(Path(compose_config(overrides).paths.store))
    run = Runs(store).named(arguments.words[0], arguments.words[0])
    outputs = finished_outputs(run, store)
    found = examine(run, outputs, canaries, limit, rows)
    out.mkdir(exist_ok=True)
    write_page(found).write(out)
    for sentence, is_open in verdicts(found):
        console.print(f"[{'yellow' if is_open else 'green'}]•[/] {escape(sentence)}")
    print(out / "index.html")


def finished_outputs(run: str, store: Store) -> list[Output]:
    """Return the finished current outputs of a run. Raises `UsageError` if it has no text."""
    entries = Runs(store).current(run)
    outputs = [store.output(entry.stage, entry.fingerprint) for entry in entries]
    outputs = [output for output in outputs if output.is_done]
    if not any(output.stage == "shard" for output in outputs):
        raise UsageError(f"{run}: has no finished shard output, so there is no text to audit")
    return outputs


def examine(run: str, outputs: list[Output], canaries: list[str], limit: int, rows: int) -> Audit:
    """Run every test on the outputs."""
    last = {output.stage: output for output in outputs}  # of several, the last
    counts = last["shard"].manifest()["counts"]
    tokenizer = Tokenizer.load(last["tokenizer"].path) if _has_pieces(last) else None
    rarity = None
    if tokenizer is not None:
        rarity = count_groups(last["shard"].path, tokenizer, limit)
    return Audit(
        run=run,
        outputs=[Kept(o.reference, str(o.path), bytes_and_files(o.path)[0]) for o in outputs],
        documents=counts["documents"],
        groups=counts.get("groups", {}),
        tracking=_tracking(last.get("pretrain")),
        offline=os.environ.get("HF_HUB_OFFLINE") == "1",
        rarity=rarity,
        searched=len(canaries),
        found=_search(outputs, canaries, tokenizer) if canaries else [],
        memory=_memory(last, rarity, rows),
    )


def _search(outputs: list[Output], canaries: list[str], tokenizer: Tokenizer | None) -> list[Found]:
    found: list[Found] = []
    for output in outputs:
        counts = search_text(output.path, canaries)
        if output.stage == "examples" and tokenizer is not None:
            for number, chunks in search_ids(output.path, canaries, tokenizer).items():
                counts[number] = counts.get(number, 0) + chunks
        found += as_found(output.reference, counts)
    return found


def _memory(last: dict[str, Output], rarity: Rarity | None, rows: int) -> "Memory | None":
    if rarity is None or "export" not in last or "examples" not in last:
        return None
    if not (last["export"].path / "config.json").exists():
        return None  # an ELMo

    from pipeline.audit.memory import measure
    from pipeline.inference.fill import read_filler

    filler = read_filler(last["export"].path)
    return measure(filler, last["examples"].path, rarity.rare_V, rows)


def _has_pieces(last: dict[str, Output]) -> bool:
    return "tokenizer" in last and (last["tokenizer"].path / "tokenizer.json").exists()


def _tracking(pretrain: Output | None) -> str:
    if pretrain is None or not (pretrain.path / JOB).exists():
        return "no record"
    tracking = json.loads((pretrain.path / JOB).read_text())["tracking"]
    return f"{', '.join(tracking['loggers']) or 'none'}; mode {tracking['mode']}"


def _number(key: str, text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"{key}={text}: must be a whole number, 1 or more")
    return int(text)
