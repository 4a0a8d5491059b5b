"""`sesame estimate`: print memory, time and cost of a pretraining before it is started."""

from rich import print as show
from rich.table import Table

from data_prep.errors import UsageError
from pipeline.commands.arguments import Arguments
from pipeline.commands.sweep_cost import cost_of, cost_table, total
from pipeline.config.compose import compose_config
from pipeline.config.schema import Config
from pipeline.config.sweep import read_sweep
from pipeline.estimate.pretraining import USABLE, Estimate, Offer, estimate, offers
from pipeline.pages.wording import byte_size
from pipeline.stages import STAGES
from pipeline.training.gpus import GPUS, Gpu

SWEEP_GPU = next(gpu for gpu in GPUS if gpu.name == "A100-80")  # of a sweep without --gpu
MANY_EPOCHS = 100  # BERT's published training has 40
UTILISATION = 0.4  # share of the GPU's peak that well-tuned BERT trainings reach


def estimate_pretraining(arguments: Arguments) -> None:
    """Print parameters, memory, tokens, operations, disk, hours and cost."""
    arguments.refuse_words()
    utilisation = number_option(arguments, "--utilisation", UTILISATION, at_most=1.0)
    price = number_option(arguments, "--price", None)
    gpus = _gpus(arguments.options.get("--gpu"))
    assert utilisation is not None
    if "-m" in arguments.options:
        gpu = gpus[0] if "--gpu" in arguments.options else SWEEP_GPU
        _estimate_sweep(arguments, gpu, utilisation, price)
        return
    config = compose_config(arguments.overrides)
    found = estimate(config, STAGES)
    _say(*_memory_table(found, config))
    _say("Work", _work_table(found))
    most = max((phase.epochs or 0.0 for phase in found.phases), default=0.0)
    if most > MANY_EPOCHS:
        print(
            f"The budget reads the text {most:,.0f} times; more than {MANY_EPOCHS} passes teach a "
            "model little: lower trainer.max_steps, or add text.\n"
        )
    _say("Disk, at its fullest", _disk_table(found))
    if config.trainer.accelerator not in ("cpu", "mps"):
        made = offers(found, config, gpus, utilisation, price)
        rough = "rough prices; --price= takes yours" if price is None else "at your price"
        count = f"{found.ranks} × " if found.ranks > 1 else ""
        title = f"{count}GPU at {100 * utilisation:g} % of its peak ({rough})"
        _say(title, _offers_table(made))


def _estimate_sweep(
    arguments: Arguments, gpu: Gpu, utilisation: float, price: float | None
) -> None:
    """Print the cost of every point, and of all together."""
    sweep = read_sweep(arguments.overrides)
    costs = []
    for point in sweep.points():
        config = compose_config(point)
        costs.append(cost_of(sweep.settings(point), config, gpu, utilisation, price))
    show(cost_table(costs))
    print(f"\n{len(costs)} points: {total(costs)}")
    print(f"every device a {gpu.name} at {100 * utilisation:g} % of its peak")


def _say(title: str, table: Table) -> None:
    show(f"[bold]{title}[/]")
    show(table)
    print()


def number_option(
    arguments: Arguments, option: str, default: float | None, at_most: float | None = None
) -> float | None:
    """Return the value of an option that is a number; raise a UsageError if it is none."""
    text = arguments.options.get(option)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError as error:
        raise UsageError(f"{option}={text}: must be a number") from error
    if value <= 0 or (at_most is not None and value > at_most):
        above = f" and at most {at_most:g}" if at_most is not None else ""
        raise UsageError(f"{option}={text}: must be more than 0{above}")
    return value


def _gpus(name: str | None) -> list[Gpu]:
    chosen = [gpu for gpu in GPUS if name in (None, gpu.name)]
    if not chosen:
        raise UsageError(f"--gpu={name}: must be one of {', '.join(gpu.name for gpu in GPUS)}")
    return chosen


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="left" if number == 0 else "right")
    return table


def _memory_table(found: Estimate, config: Config) -> tuple[str, Table]:
    trainer = config.trainer
    ranks = f"{found.ranks} rank{'s' if found.ranks > 1 else ''}"
    title = (
        f"{found.parameters:,} parameters with {found.vocab_size:,} pieces; memory of a device "
        f"({trainer.strategy}, {ranks}, {trainer.precision})"
    )
    table = _table("", *(f"{phase.length} positions" for phase in found.phases))
    table.add_row("rows in a forward pass", *(f"{phase.micro_batch:,}" for phase in found.phases))
    for part in ("weights", "gradients", "optimizer", "exchange", "activations", "total"):
        sizes = [getattr(phase.memory, part) for phase in found.phases]
        if any(sizes):
            table.add_row(part, *map(byte_size, sizes), style="bold" if part == "total" else "")
    return title, table


def _work_table(found: Estimate) -> Table:
    phases = found.phases
    table = _table("", *(f"{phase.length} positions" for phase in phases), "in all")
    steps = [phase.steps for phase in phases]
    table.add_row(
        "steps",
        *("by the clock" if each is None else f"{each:,}" for each in steps),
        "" if None in steps else f"{sum(each or 0 for each in steps):,}",
    )
    tokens = [phase.tokens_per_step for phase in phases]
    table.add_row("tokens a step", *(f"{each:,.0f}" for each in tokens), _count(found.tokens))
    flops = [phase.flops_per_step for phase in phases]
    table.add_row("FLOPs a step", *(f"{each:.2e}" for each in flops), _power(found.flops))
    epochs = [phase.epochs for phase in phases]
    if any(each is not None for each in epochs):
        shown = ("" if each is None else f"{each:,.1f}" for each in epochs)
        table.add_row(f"epochs (by {found.corpus})", *shown, "")
    else:
        table.add_row("epochs", *("unknown: set corpus.paths" for _ in epochs), "")
    return table


def _disk_table(found: Estimate) -> Table:
    table = _table("stage", "bytes")
    for stage, size in found.disk.items():
        table.add_row(stage, "unknown: set corpus.paths" if size is None else byte_size(size))
    return table


def _offers_table(made: list[Offer]) -> Table:
    table = _table("GPU", "hours", "tokens", "dollars", "memory", "")
    table.columns[-1].justify = "left"
    for offer in made:
        fits = (
            f"[red]will not fit[/] (needs {byte_size(offer.needs)}); fits with {offer.remedy}"
            if offer.remedy
            else "[green]fits[/]"
        )
        table.add_row(
            offer.gpu.name, f"{offer.hours:,.1f}", _count(offer.tokens), f"{offer.cost:,.0f}",
            f"{byte_size(USABLE * offer.gpu.memory)} usable", fits,
        )  # fmt: skip
    return table


def _count(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value / 1e9:,.1f} G" if value >= 1e9 else f"{value / 1e6:,.1f} M"


def _power(value: float | None) -> str:
    return "" if value is None else f"{value:.2e}"
