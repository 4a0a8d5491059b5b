"""The resources that the jobs of a stage request, as options of sbatch.

GPUs follow from the configuration (`trainer.devices`, `finetune.accelerator`). The site file may
name their type and number. Nothing here calls SLURM.
"""

import re
from dataclasses import dataclass, replace
from math import ceil

from data_prep.errors import UsageError
from data_prep.fields import execution
from pipeline.config.schema import Config

GPU_STAGES = (
    "pretrain",
    "finetune",
    "model",
    "layers",
)  # stages that compute on a GPU if there is one
NO_LIMIT = ("UNLIMITED", "INFINITE")
# What a value may be: a word of a #SBATCH line or of a command, an option, a line of a script.
WORD = re.compile(r"[^\s\"'\\`$;\x00-\x1f\x7f]+")
LINE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f\x85\u2028\u2029]+")
OPTION = re.compile(rf"--?[A-Za-z][\w-]*(=(?:{LINE.pattern}))?")
GPUS = re.compile(r"(?P<count>\d+)|(?P<type>[A-Za-z][\w.-]*)(:(?P<typed_count>\d+))?")
TIME = re.compile(r"(?i:unlimited|infinite)|(\d+-)?\d+(:\d+){0,2}")


@dataclass(frozen=True)
class Gpus:
    """GPUs per node; None for a type or count that is not given."""

    count: int | None = None
    type: str | None = None

    @classmethod
    def parse(cls, text: str | None) -> "Gpus":
        """Read `4`, `a100` or `a100:4`."""
        found = GPUS.fullmatch(text or "")
        if found is None:
            return cls()
        count = found["count"] or found["typed_count"]
        return cls(int(count) if count else None, found["type"])

    def __str__(self) -> str:
        return ":".join(str(part) for part in (self.type, self.count) if part is not None)


@dataclass
class Resources:
    """Resources that the jobs of a stage request."""

    partition: str | None = execution(None, "the partition")
    account: str | None = execution(None, "the account to charge")
    qos: str | None = execution(None, "the quality of service")
    reservation: str | None = execution(None, "the reservation")
    time: str | None = execution(None, "the time limit, such as 24:00:00, 2-12 or UNLIMITED")
    constraint: str | None = execution(None, "features that a node must have")
    gpus: str | None = execution(
        None, "GPUs per node: a number, a type, or both (a100:4); otherwise trainer.devices"
    )
    cpus: int | None = execution(None, "CPUs per task", at_least=1)
    memory: str | None = execution(None, "memory per node, such as 64G")
    mail: str | None = execution(None, "address for SLURM's mail")
    mail_type: str | None = execution(None, "events to mail about; END,FAIL if not set")
    extra: list[str] = execution([], "more options of sbatch, such as --exclusive")

    def options(self, as_gres: bool = False) -> list[str]:
        """Return the settings as options of sbatch."""
        return [f"--{key}={value}" for key, value in self.parameters(as_gres).items()] + self.extra

    def parameters(self, as_gres: bool = False) -> dict[str, str]:
        """Return the settings as names and values of sbatch, without `extra`.

        `as_gres`: request GPUs with --gres and not with --gpus-per-node.
        """
        gpus = Gpus.parse(self.gpus)
        wanted = str(gpus) if gpus.count != 0 and self.gpus else None
        given = {
            "partition": self.partition,
            "account": self.account,
            "qos": self.qos,
            "reservation": self.reservation,
            "time": self.time,
            "constraint": self.constraint,
            "gpus-per-node": None if as_gres else wanted,
            "gres": f"gpu:{wanted}" if as_gres and wanted else None,
            "cpus-per-task": self.cpus,
            "mem": self.memory,
            "mail-user": self.mail,
            "mail-type": (self.mail_type or "END,FAIL") if self.mail else None,
        }
        return {key: str(value) for key, value in given.items() if value is not None}

    def check_text(self, prefix: str) -> None:
        """Raise `UsageError` for a value that is more than one word or option of a script."""
        for name in (
            "partition", "account", "qos", "reservation", "time", "constraint", "gpus", "memory",
            "mail", "mail_type",
        ):  # fmt: skip
            value = getattr(self, name)
            if value is not None and not WORD.fullmatch(value):
                raise UsageError(
                    f"{prefix}{name}: must be one word without white space or quotes; found "
                    f"{len(value)} characters that are not"
                )
        if self.gpus is not None and not GPUS.fullmatch(self.gpus):
            raise UsageError(
                f"{prefix}gpus={self.gpus}: must be a number, a type, or both, such as a100:4"
            )
        if self.time is not None and not TIME.fullmatch(self.time):
            raise UsageError(
                f"{prefix}time={self.time}: must be a time limit of SLURM, such as 24:00:00, "
                "2-12:00 (days-hours) or UNLIMITED"
            )
        for number, option in enumerate(self.extra, 1):
            if not isinstance(option, str) or not OPTION.fullmatch(option):
                raise UsageError(
                    f"{prefix}extra: item {number} must be one option of sbatch, --name or "
                    "--name=value, in one line"
                )

    def minutes(self) -> int | None:
        """Return the time limit in minutes, rounded up; None if there is none."""
        if self.time is None or self.time.upper() in NO_LIMIT:
            return None
        days, dash, clock = self.time.rpartition("-")
        parts = [int(part) for part in clock.split(":")]
        if dash:  # days-hours, days-hours:minutes, days-hours:minutes:seconds
            hours, minutes, seconds = [*parts, 0, 0][:3]
        else:  # minutes, minutes:seconds, hours:minutes:seconds
            hours, minutes, seconds = (parts if len(parts) == 3 else [0, *parts, 0])[:3]
        return ceil((int(days or 0) * 24 + hours) * 60 + minutes + seconds / 60)

    def available(self, gpus: dict[str, int]) -> int | None:
        """Return the most GPUs of a node of the partition; None if that is not known.

        `gpus`: by partition, "" for the default partition.
        """
        names = (self.partition or "").split(",")
        return max((gpus[name] for name in names if name in gpus), default=None)

    def for_stage(self, stage: str, config: Config, available: int | None) -> "Resources":
        """Return the resources with the GPUs that the configuration needs.

        `available`: the most GPUs that a node of the partition has; None if that is not known.
        Raises `UsageError` if there are too few.
        """
        key, accelerator, devices = _wanted_devices(stage, config)
        given = Gpus.parse(self.gpus)
        if accelerator == "auto":  # takes GPUs where there are some
            wants = given.count != 0 if self.gpus else bool(available)
        else:
            wants = accelerator == "cuda"
        if not wants:
            return self if devices == 0 else replace(self, gpus=None)
        if given.count is not None and given.count < devices:
            raise UsageError(
                f"stages.{stage}.gpus={self.gpus}: {key} needs {devices} GPUs per node; set gpus "
                f"of the site file to {replace(given, count=devices)}, or lower {key}"
            )
        asked = replace(given, count=given.count or devices)
        if available is not None and available < devices:
            where = f"partition {self.partition}" if self.partition else "the default partition"
            raise UsageError(
                f"{key}: needs {devices} GPUs per node, but the nodes of {where} have {available}; "
                f"choose another partition in the site file, or use {_without_gpus(stage)}"
            )
        return replace(self, gpus=str(asked))


def _wanted_devices(stage: str, config: Config) -> tuple[str, str, int]:
    """Return the key, the accelerator and the devices per node that a stage computes on."""
    if stage == "pretrain":
        trainer = config.trainer
        return f"trainer.devices={trainer.devices}", trainer.accelerator, trainer.devices
    if stage in GPU_STAGES:
        tuning = config.finetune
        devices = 1 if stage == "layers" else tuning.devices  # a layer table trains heads only
        return f"finetune.devices={devices}", tuning.accelerator, devices
    return "", "cpu", 0


def _without_gpus(stage: str) -> str:
    return f"{'trainer' if stage == 'pretrain' else 'finetune'}.accelerator=cpu"
