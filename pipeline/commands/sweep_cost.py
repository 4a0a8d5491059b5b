"""What a sweep costs before it is started: hours, dollars and disk of all points together.

Stages that points share are counted once. `sesame plan -m` counts only what is not made yet.
Try it: sesame estimate -m experiment=bert_base optim.lr=1e-4,2e-4 examples.mask_rate=0.15,0.3
"""

from collections.abc import Callable
from dataclasses import dataclass

from rich.markup import escape
from rich.table import Table

from pipeline.config.schema import Config
from pipeline.estimate.pretraining import Estimate, estimate, offers
from pipeline.pages.wording import byte_size
from pipeline.stages import STAGES
from pipeline.store.outputs import canonical
from pipeline.training.gpus import Gpu

CHAIN = ("shard", "tokenizer", "examples", "pretrain", "export")  # stages that an estimate covers


@dataclass(frozen=True)
class PointCost:
    """The estimate of one point of a sweep."""

    settings: list[str]
    config: Config
    found: Estimate
    hours: float | None  # None on CPUs, unless the budget is in hours
    dollars: float | None
    identities: dict[str, str]  # by stage; equal for points that share the stage's output


@dataclass(frozen=True)
class Total:
    """The sums over all points; None if a part is not known."""

    hours: float | None
    dollars: float | None
    disk: float | None

    def __str__(self) -> str:
        hours = "unknown hours (CPUs)" if self.hours is None else f"{self.hours:,.1f} hours"
        cost = "" if self.dollars is None else f", {self.dollars:,.0f} dollars"
        disk = "disk unknown: set corpus.paths" if self.disk is None else byte_size(self.disk)
        return f"{hours} of pretraining{cost}, {disk}"


def cost_of(
    settings: list[str], config: Config, gpu: Gpu, utilisation: float, price: float | None
) -> PointCost:
    """Estimate one point on one kind of GPU."""
    found = estimate(config, STAGES)
    hours, dollars = config.trainer.max_hours, None
    if config.trainer.accelerator not in ("cpu", "mps"):
        [offer] = offers(found, config, [gpu], utilisation, price)
        hours, dollars = offer.hours, offer.cost
    return PointCost(settings, config, found, hours, dollars, _identities(config))


def _identities(config: Config) -> dict[str, str]:
    """Return per stage the settings of it and of all stages before it."""
    keys = [STAGES[stage].keys(config) for stage in CHAIN]
    return {stage: canonical(keys[: number + 1]) for number, stage in enumerate(CHAIN)}


def total(
    points: list[PointCost], is_needed: Callable[[int, str], bool] = lambda point, stage: True
) -> Total:
    """Sum up the points, each output once. `is_needed(point, stage)` is False for what is made."""
    once: dict[str, tuple[PointCost, str]] = {}
    for number, point in enumerate(points):
        for stage in CHAIN:
            if is_needed(number, stage):
                once.setdefault(point.identities[stage], (point, stage))
    trained = [point for point, stage in once.values() if stage == "pretrain"]
    return Total(
        _sum([point.hours for point in trained]),
        _sum([point.dollars for point in trained]),
        _sum([point.found.disk[stage] for point, stage in once.values()]),
    )


def _sum(parts: list[float | None]) -> float | None:
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def cost_table(points: list[PointCost]) -> Table:
    """Return a row per point and the total."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("point", "settings", "FLOPs", "hours", "dollars", "pretrain on disk"):
        left = heading in ("point", "settings")
        table.add_column(heading, justify="left" if left else "right", overflow="fold")
    for number, point in enumerate(points):
        disk = point.found.disk["pretrain"]
        table.add_row(
            str(number), escape(", ".join(point.settings)), _shown(point.found.flops, ".2e"),
            _shown(point.hours, ",.1f"), _shown(point.dollars, ",.0f"),
            byte_size(disk) if disk is not None else "",
        )  # fmt: skip
    return table


def _shown(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
