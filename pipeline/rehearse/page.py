"""Show a rehearsal: index.html without network or script, and rehearsal.txt with the same rows."""

from collections.abc import Sequence
from pathlib import Path

from data_prep.files import write_atomically
from pipeline.config.schema import Config
from pipeline.pages.blocks import Column, Fact, Facts, Note, Section, Table
from pipeline.pages.page import Page, render
from pipeline.rehearse.checks import Check, Cost, Verdict

TEXT = "rehearsal.txt"
LEAD = (
    "Dozens of real steps of this training on its real devices. Attach this page to a question: it "
    "holds settings, versions, measurements and errors, and no text of the corpus."
)


def headline(checks: Sequence[Check]) -> str:
    """Return the outcome in a sentence."""
    failed = sum(check.verdict == Verdict.FAILED for check in checks)
    change = sum(check.verdict == Verdict.CHANGE for check in checks)
    if failed:
        return f"{failed} of {len(checks)} checks failed"
    if change:
        return f"It trains; {change} setting{'s'[: change > 1]} should change"
    return "Ready to train"


def make_page(checks: Sequence[Check], cost: Cost, config: Config) -> Page:
    """Return the page of a rehearsal."""
    rows = [[check.question, check.verdict, check.found, check.remedy] for check in checks]
    names = [Column(name) for name in ("question", "answer", "found", "change")]
    steps = Section("checks", "Checks", [Table("", names, rows), Note(_hours_note(config))])
    settings = [[key, value] for key, value in _settings(config)]
    table = Table("Settings of the job", [Column("key"), Column("value")], settings, folded=True)
    shown = Section("settings", "Settings", [table])
    facts = Facts([Fact(name, value) for name, value in _facts(cost, config)])
    return render("rehearsal", headline(checks), LEAD, facts, [steps, shown])


def as_text(checks: Sequence[Check], cost: Cost, config: Config) -> str:
    """Return the rehearsal as plain text, for a terminal and for mail."""
    lines = [headline(checks), ""]
    for check in checks:
        lines.append(f"[{check.verdict}] {check.question}: {check.found}")
        if check.remedy:
            lines.append(f"    change: {check.remedy}")
    lines += ["", *(f"{name}: {value}" for name, value in _facts(cost, config))]
    lines += ["", _hours_note(config), "", *(f"{key}={value}" for key, value in _settings(config))]
    return "\n".join(lines) + "\n"


def write(checks: Sequence[Check], cost: Cost, config: Config, out: Path) -> None:
    """Write both forms to the folder `out`."""
    out.mkdir(parents=True)
    make_page(checks, cost, config).write(out)
    write_atomically(out / TEXT, as_text(checks, cost, config))


def _facts(cost: Cost, config: Config) -> list[tuple[str, str]]:
    unknown = "unknown"
    return [
        ("hours to the end", unknown if cost.hours is None else f"{cost.hours:,.2f}"),
        ("dollars", "set --price=" if cost.dollars is None else f"{cost.dollars:,.2f}"),
        ("seconds per step", ", ".join(f"{pace:.3g}" for pace in cost.seconds_per_step) or unknown),
        ("ranks", f"{config.trainer.world_size} ({config.trainer.strategy})"),
    ]


def _hours_note(config: Config) -> str:
    if config.trainer.max_hours is not None:
        return "The budget is in hours, so the hours are the budget's."
    return (
        "Hours are steps times the median seconds per step of each phase, without evaluations, "
        "queues and restarts."
    )


def _settings(config: Config) -> list[tuple[str, str]]:
    """Return the settings that shape training, flat, without places of the user."""
    found: list[tuple[str, str]] = []
    for section in ("model", "optim", "trainer"):
        for key, value in vars(getattr(config, section)).items():
            if value is not None:
                found.append((f"{section}.{key}", str(value)))
    return found
