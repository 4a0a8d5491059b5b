"""Judge a rehearsal: one `Check` per question, with the setting to change where the answer is no.

Pure functions of what the legs measured. No text of the corpus and no host name enters a check.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

from pipeline.config.schema import Config
from pipeline.estimate.pretraining import USABLE, Estimate, offers
from pipeline.rehearse.legs import Leg, Legs
from pipeline.training.gpus import Gpu, recognise

LOSS_TOLERANCE = 0.02  # relative, bf16 against fp32
NORM_TOLERANCE = 0.1
DATA_WAIT = 0.05  # share of a step's time spent waiting for data
CHECKPOINT_WAIT = 0.02  # share of training spent waiting for checkpoints
LOW_UTILISATION = 0.25  # on a GPU; well-tuned BERT trainings reach 0.4
UNUSED_MEMORY = 0.5


class Verdict(StrEnum):
    """The outcome of a check."""

    GOOD = "good"
    CHANGE = "change"  # works, but a setting should change
    FAILED = "failed"
    SKIPPED = "not checked"


@dataclass(frozen=True)
class Check:
    """One question about the machine and the job, with its answer."""

    question: str
    verdict: Verdict
    found: str
    remedy: str = ""


@dataclass(frozen=True)
class Cost:
    """The rest of the training, from the measured pace."""

    seconds_per_step: list[float]  # by phase
    hours: float | None  # None if a phase was not measured, or the budget is in hours
    dollars: float | None  # None without a price


def judge(legs: Legs, config: Config, estimate: Estimate) -> list[Check]:
    """Return all checks, in the order of the page."""
    first = legs.measured[0]
    return [
        _start(first, config),
        _packages(first),
        _exchange(first, config),
        *(
            check
            for number, leg in enumerate(legs.measured)
            for check in _phase(number, leg, config, estimate)
        ),
        _checkpoints(first, config),
        _state(legs.resumed),
        _resume(legs),
        _kernels(legs, config),
    ]


def cost_of(legs: Legs, config: Config, estimate: Estimate, price: float | None) -> Cost:
    """Return hours and dollars of the whole training, at the measured pace."""
    paces = [leg.typical("seconds") for leg in legs.measured]
    known = [pace for pace in paces if pace is not None]
    hours = config.trainer.max_hours
    steps = [phase.steps for phase in estimate.phases]
    if hours is None and len(known) == len(steps):
        hours = sum(p * (n or 0) for p, n in zip(known, steps, strict=True)) / 3600
    gpu = gpu_of(legs.measured[0])
    each = price if price is not None else gpu.price if gpu else None
    dollars = None if hours is None or each is None else hours * estimate.ranks * each
    return Cost(known, hours, dollars)


def gpu_of(leg: Leg) -> Gpu | None:
    """Return the GPU of the ranks; None if it is unknown or there is none."""
    return recognise(leg.probed.ranks[0]["device"]) if leg.probed else None


def _start(leg: Leg, config: Config) -> Check:
    question, world = "All ranks start and see the store", config.trainer.world_size
    if leg.probed is None:
        remedy = "see the error; sesame doctor checks this machine"
        return Check(question, Verdict.FAILED, leg.error or "no rank reported", remedy)
    ranks = leg.probed.ranks
    devices = ", ".join(sorted({rank["device"] for rank in ranks}))
    nodes = len({rank["host"] for rank in ranks})
    found = f"{len(ranks)} of {world} ranks on {nodes} node{'s'[: nodes > 1]}: {devices}"
    return Check(question, Verdict.GOOD if len(ranks) == world else Verdict.FAILED, found)


def _packages(leg: Leg) -> Check:
    question = "All ranks have the same packages"
    if leg.probed is None:
        return Check(question, Verdict.SKIPPED, "no rank reported")
    versions = [rank["packages"] | {"python": rank["python"]} for rank in leg.probed.ranks]
    for package, expected in versions[0].items():
        odd = [rank for rank, found in enumerate(versions) if found[package] != expected]
        if odd:
            found = f"{package} {expected} on rank 0, {versions[odd[0]][package]} on rank {odd[0]}"
            return Check(question, Verdict.FAILED, found, "install the same versions on all nodes")
    shown = ", ".join(f"{package} {found}" for package, found in versions[0].items() if found)
    return Check(question, Verdict.GOOD, shown)


def _exchange(leg: Leg, config: Config) -> Check:
    question = "Ranks exchange numbers"
    if leg.probed is None or config.trainer.world_size == 1:
        return Check(question, Verdict.SKIPPED, "a single rank" if leg.probed else "none reported")
    return Check(question, Verdict.GOOD, f"16 MB summed in {leg.probed.exchange_seconds:.4f} s")


def _phase(number: int, leg: Leg, config: Config, estimate: Estimate) -> list[Check]:
    """Return the checks of one phase: does it run, fit, and use the device?"""
    length = estimate.phases[number].length
    where = f"{length} positions"
    if leg.error:
        remedy = _smaller(leg, config, estimate) if leg.is_memory else "see the error"
        return [Check(f"{where}: steps run", Verdict.FAILED, leg.error, remedy)]
    speed, pace = leg.typical("tokens_per_second"), leg.typical("seconds")
    if speed is None or pace is None:
        return [Check(f"{where}: steps run", Verdict.SKIPPED, "too few steps to time")]
    found = f"{speed:,.0f} tokens/s, {pace:.3f} s per step; last loss {_last(leg):.3f}"
    return [
        Check(f"{where}: steps run", Verdict.GOOD, found),
        _memory(where, leg, config, estimate.phases[number].memory.total),
        _utilisation(where, leg),
        _data(where, leg, config),
    ]


def _last(leg: Leg) -> float:
    return leg.losses[max(leg.losses)]


def _smaller(leg: Leg, config: Config, estimate: Estimate) -> str:
    """Return the setting with which the job fits, from the estimate or by halving."""
    if gpu := gpu_of(leg):
        (offer,) = offers(estimate, config, [gpu], 0.4, None)
        if offer.remedy:
            return offer.remedy
    rows = config.trainer.global_batch_size // config.trainer.world_size
    micro = config.trainer.micro_batch_size or rows
    if micro > 1:
        return f"trainer.micro_batch_size={micro // 2}"
    return "trainer.activation_checkpointing=true, or more ranks with trainer.strategy=zero2"


def _memory(where: str, leg: Leg, config: Config, estimated: float) -> Check:
    question, used = f"{where}: memory", leg.most("peak_memory_bytes")
    if used is None:
        return Check(question, Verdict.SKIPPED, "not measured")
    found = f"{used / 1e9:.2f} GB at most on rank 0; {estimated / 1e9:.2f} GB estimated"
    memory = leg.probed.ranks[0]["memory"] if leg.probed else None
    if memory is None:
        return Check(question, Verdict.GOOD, f"{found} without Python and torch")
    found += f"; the device has {memory / 1e9:.0f} GB"
    micro = config.trainer.micro_batch_size
    if used > USABLE * memory:
        remedy = f"trainer.micro_batch_size={micro // 2}" if micro else "trainer.micro_batch_size"
        return Check(question, Verdict.CHANGE, f"{found}: little is left", remedy)
    rows = config.trainer.global_batch_size // config.trainer.world_size
    if used < UNUSED_MEMORY * memory and micro is not None and micro < rows:
        remedy = f"trainer.micro_batch_size={min(2 * micro, rows)} uses more of it, and is faster"
        return Check(question, Verdict.CHANGE, found, remedy)
    return Check(question, Verdict.GOOD, found)


def _utilisation(where: str, leg: Leg) -> Check:
    question, share = f"{where}: utilisation", leg.typical("flop_utilisation")
    if share is None:
        return Check(question, Verdict.SKIPPED, "the device's peak is unknown")
    found = f"{100 * share:.1f} % of the peak"
    is_gpu = leg.probed is not None and leg.probed.ranks[0]["accelerator"] == "cuda"
    if is_gpu and share < LOW_UTILISATION:
        remedy = "a larger trainer.micro_batch_size, trainer.precision=bf16-mixed, packed examples"
        return Check(question, Verdict.CHANGE, found, remedy)
    return Check(question, Verdict.GOOD, found)


def _data(where: str, leg: Leg, config: Config) -> Check:
    question, share = f"{where}: waiting for data", leg.typical("data_wait")
    if share is None:
        return Check(question, Verdict.SKIPPED, "not measured")
    found = f"{100 * share:.1f} % of the time"
    if share > DATA_WAIT:
        more = 2 * (config.trainer.loader_workers or 1)
        return Check(question, Verdict.CHANGE, found, f"trainer.loader_workers={more}")
    return Check(question, Verdict.GOOD, found)


def _checkpoints(leg: Leg, config: Config) -> Check:
    question = "Checkpoints"
    saved = leg.probed.checkpoints if leg.probed else []
    pace = leg.typical("seconds")
    if not saved or pace is None:
        return Check(question, Verdict.SKIPPED, "none was written")
    waited, written = saved[-1]["waited"], saved[-1]["written"]  # the first connects the ranks
    found = f"training waits {waited:.2f} s; written behind it in {written:.2f} s"
    between = pace * config.trainer.checkpoint_every
    if written > between or waited > CHECKPOINT_WAIT * between:
        needed = math.ceil(max(written, waited / CHECKPOINT_WAIT) / pace)
        return Check(question, Verdict.CHANGE, found, f"trainer.checkpoint_every={needed}")
    return Check(question, Verdict.GOOD, found)


def _state(resumed: Leg | None) -> Check:
    question = "State read back equals state saved"
    if resumed is None or (resumed.probed is None and not resumed.error):
        return Check(question, Verdict.SKIPPED, "no leg was resumed")
    if resumed.error or resumed.probed is None:
        return Check(question, Verdict.FAILED, resumed.error, "check the disk below paths.store")
    tensors = resumed.probed.compared_tensors
    return Check(question, Verdict.GOOD, f"bit by bit, {tensors} tensors on rank 0")


def _resume(legs: Legs) -> Check:
    question = "A stopped and resumed run continues as an undisturbed one"
    if legs.resumed is None or legs.repeated is None or legs.resumed.error or legs.repeated.error:
        return Check(question, Verdict.SKIPPED, "a leg failed or was not run")
    whole = legs.measured[0].losses
    resumed, spread = _apart(whole, legs.resumed.losses), _apart(whole, legs.repeated.losses)
    if resumed == 0:
        return Check(
            question, Verdict.GOOD, f"losses of {len(legs.resumed.losses)} steps bit-equal"
        )
    found = f"losses differ by at most {resumed:.2g}, those of two equal runs by {spread:.2g}"
    # A spread of two runs is itself a random number, hence the factor.
    if spread == 0 or resumed > 2 * spread:
        remedy = "report this page: the devices are deterministic, or more so than the resume"
        return Check(question, Verdict.FAILED, found, remedy)
    return Check(question, Verdict.GOOD, f"{found}: these devices are not deterministic")


def _apart(left: dict[int, float], right: dict[int, float]) -> float:
    """Return the largest relative difference over the steps of both; infinite without any."""
    common = left.keys() & right.keys()
    return max(
        (abs(left[step] - right[step]) / abs(left[step]) for step in common), default=math.inf
    )


def _kernels(legs: Legs, config: Config) -> Check:
    question, precision = "Kernels agree with fp32", config.trainer.precision
    if legs.own is None or legs.fp32 is None:
        why = "the job trains in fp32" if precision == "fp32" else "an earlier leg failed"
        return Check(question, Verdict.SKIPPED, why)
    if error := legs.own.error or legs.fp32.error:
        return Check(question, Verdict.SKIPPED, f"a leg failed: {error}")
    loss = _apart(legs.fp32.losses, legs.own.losses)
    norm = _apart(legs.fp32.norms, legs.own.norms)
    found = (
        f"{precision}, without dropout: losses differ by at most {100 * loss:.2f} %, gradient "
        f"norms by {100 * norm:.2f} %"
    )
    if loss > LOSS_TOLERANCE or norm > NORM_TOLERANCE:
        return Check(
            question, Verdict.FAILED, found, "trainer.precision=fp32, and report this page"
        )
    return Check(question, Verdict.GOOD, found)
