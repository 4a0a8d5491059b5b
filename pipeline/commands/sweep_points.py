"""Sweeps: settings for Hydra's sweeper and launcher, and a summary of all points.

Every point writes `<store>/sweeps/<id>/<number>/point.json`. At the end the command prints a table
of all points and writes it to `<store>/sweeps/<id>/summary.json`.
Try it: sesame finetune -m encoder=mine task=sst2 finetune.lr=2e-5,5e-5 finetune.seed=1,2,3
"""

import json
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from statistics import fmean

from rich.markup import escape
from rich.table import Table

from data_prep.errors import UsageError
from data_prep.files import write_atomically
from pipeline.cluster.site import Site
from pipeline.cluster.submitit import launcher_settings
from pipeline.commands.comparable import why_not_comparable
from pipeline.config.compose import HydraChoices
from pipeline.config.schema import Config
from pipeline.config.sweep import LAUNCHER, SWEEPER
from pipeline.store.outputs import Output, Store
from pipeline.tasks.significance import LEVEL, SEEDS, Sample, is_clear

JUDGED = (
    f"clearly behind: a t-test over at least {SEEDS} seeds against the best gives p < {LEVEL:g}, "
    "divided by the number of pairs of variants. cannot tell: p is larger"
)
POINT, SUMMARY = "point.json", "summary.json"
# The objective of a sweep by stage: its name, and whether the largest or smallest value is best.
OBJECTIVES = {"finetune": ("score on the development set", max), "pretrain": ("held-out loss", min)}


@dataclass(frozen=True)
class Point:
    """One point of a sweep: its settings, its output and its objective."""

    number: int
    settings: list[str]  # overrides that differ between points
    output: str  # reference of the output; empty if the point failed
    value: float | None  # the objective; None if the stage has none
    error: str = ""
    stopped: str = ""  # why it was stopped early
    resolution: float = 0.0  # smallest difference that the objective can show; 0 = continuous

    @property
    def variant(self) -> str:
        """The settings without seeds."""
        kept = [word for word in self.settings if not word.partition("=")[0].endswith("seed")]
        return ", ".join(kept)


def finished_point(number: int, settings: list[str], output: Output) -> Point:
    """Return the point of a finished output, with its objective."""
    resolution = 0.0
    if output.stage == "finetune":
        examples = json.loads((output.path / "scores.json").read_text())["dev_examples"]
        resolution = 1 / examples if examples else 0.0
    return Point(number, settings, output.reference, objective(output), resolution=resolution)


def objective(output: Output) -> float | None:
    """Return the objective of a finished output; None if its stage has none."""
    if output.stage == "finetune":
        scores = json.loads((output.path / "scores.json").read_text())
        # Members of a suite have development sets of their own, which `comparable` does not see.
        return None if scores["kind"] == "suite" else float(scores["dev_score"])
    if output.stage == "pretrain":
        lines = (output.path / "metrics.jsonl").read_text().splitlines()
        losses = [json.loads(line).get("heldout_loss") for line in lines]
        return float([loss for loss in losses if loss is not None][-1])
    return None


def sweep_folder(config: Config) -> Path:
    """Return a new folder for a sweep, named by time in microseconds; does not create it."""
    stamp = datetime.now().strftime("%Y-%m-%d_%H-%M-%S_%f")
    return Path(config.paths.store).resolve() / "sweeps" / stamp


def for_hydra(
    overrides: list[str],
    stage: str,
    config: Config,
    folder: Path,
    site: Site,
    choices: HydraChoices,
    gpus: dict[str, int],
) -> list[str]:
    """Return the user's overrides with those added that the site, Optuna and the folder need.

    `gpus`: the most GPUs of a node by partition, as `slurm.most_gpus` returns them.
    Values given by the user are kept.
    """
    given = dict(word.partition("=")[::2] for word in overrides)
    added = {"hydra.sweep.dir": str(folder)}
    if choices.launcher == "submitit_slurm":
        if config.trainer.world_size > 1 and stage in ("pretrain", "run"):
            raise UsageError(
                f"{LAUNCHER}=submitit_slurm: gives a job one task, but this pretraining needs "
                f"{config.trainer.world_size} ranks; use sesame submit -m"
            )
        own = site.of(stage)
        own = own.for_stage(stage, config, own.available(gpus))
        added |= launcher_settings(own, site, given)
    if choices.sweeper == "optuna":
        best = OBJECTIVES.get(stage)
        if best is None:
            names = ", ".join(OBJECTIVES)
            raise UsageError(f"{SWEEPER}=optuna: sweeps {names} only; {stage} has no objective")
        database = folder.parent / "optuna.db"  # one for all sweeps, so that a study can continue
        added |= {
            "hydra.sweeper.storage": f"sqlite:///{database}",
            "hydra.sweeper.study_name": f"{config.name}-{stage}",
            "hydra.sweeper.direction": "maximize" if best[1] is max else "minimize",
        }
    return [*overrides, *(f"{key}={value}" for key, value in added.items() if key not in given)]


def write_point(folder: Path, point: Point) -> None:
    """Write a point's result to its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / POINT, json.dumps(asdict(point), indent=1))


def read_points(folder: Path) -> list[Point]:
    """Return all points of a sweep, sorted by number."""
    found = [Point(**json.loads(path.read_text())) for path in folder.glob(f"*/{POINT}")]
    return sorted(found, key=lambda point: point.number)


def summarise_sweep(folder: Path, stage: str, store: Store) -> Table:
    """Return a table of all points, the mean over seeds per variant, and the best variant.

    Writes the same to summary.json. If the points were not measured on the same data there is no
    best variant, and a line says why.
    """
    points = read_points(folder)
    name, better = OBJECTIVES.get(stage, ("", max))
    measured = [point for point in points if point.value is not None]
    means = _means(measured)
    variants: dict[str, list[Output]] = defaultdict(list)
    for point in measured:
        variants[point.variant].append(store.from_reference(point.output))
    reason = why_not_comparable(variants)
    best = better(means, key=means.__getitem__) if means and not reason else None
    marks = {} if best is None else _marks(measured, best)
    content = {
        "stage": stage,
        "objective": name,
        "best": best,
        "why_no_best": reason,
        "means": means,
        "points": [asdict(point) for point in points],
    }
    write_atomically(folder / SUMMARY, json.dumps(content, indent=1) + "\n")
    table = Table(
        title=f"Sweep of {len(points)} points: {name or 'outputs'}",
        title_justify="left",
        caption=escape(reason or (JUDGED if len(set(marks.values()) - {""}) > 1 else "")),
        caption_justify="left",
    )
    for heading in ("point", "settings", name or "output", "mean over seeds"):
        table.add_column(heading, overflow="fold")
    for point in points:
        value = point.output if point.value is None else f"{point.value:.4f}"
        mean = f"{means[point.variant]:.4f}" if point.variant in means else ""
        mark = marks.get(point.variant, "")
        mark = f"[green]{mark}[/]" if point.variant == best else mark
        shown = f"[red]{escape(point.error)}[/]" if point.error else escape(point.stopped) or value
        table.add_row(str(point.number), escape(", ".join(point.settings)), shown, f"{mean} {mark}")
    return table


def _marks(points: Sequence[Point], best: str) -> dict[str, str]:
    """Return a word per variant: best, or the outcome of the test against the best."""
    groups: dict[str, list[Point]] = defaultdict(list)
    for point in points:
        groups[point.variant].append(point)
    samples = {variant: _sample(group) for variant, group in groups.items()}
    # The best is chosen among all, so all pairs count as compared.
    pairs = math.comb(len(samples), 2)
    words = {True: "clearly behind", False: "cannot tell", None: ""}
    return {
        variant: "best" if variant == best else words[is_clear(samples[best], sample, pairs)]
        for variant, sample in samples.items()
    }


def _sample(points: Sequence[Point]) -> Sample:
    values = [point.value for point in points if point.value is not None]
    return Sample(values, points[0].resolution)


def _means(points: Sequence[Point]) -> dict[str, float]:
    groups: dict[str, list[float]] = defaultdict(list)
    for point in points:
        assert point.value is not None
        groups[point.variant].append(point.value)
    return {variant: fmean(values) for variant, values in groups.items()}
