"""`sesame doctor`: check this machine, with a remedy for everything that does not work."""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from rich import print as show
from rich.markup import escape
from rich.table import Table

from pipeline.commands.arguments import Arguments
from pipeline.config.compose import compose_config

PROBE_SECONDS = 120
LOW_DISK = 10 << 30


@dataclass(frozen=True)
class Finding:
    """One result of a check."""

    what: str
    found: str
    remedy: str = ""  # empty if all is well


def doctor(arguments: Arguments) -> None:
    """Check everything that training needs and print the findings."""
    store = Path(compose_config(arguments.overrides).paths.store)
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("", "found", "remedy"):
        table.add_column(heading, overflow="fold")
    for finding in examine(store):
        mark = "[yellow]![/]" if finding.remedy else "[green]✓[/]"
        table.add_row(f"{mark} {finding.what}", escape(finding.found), escape(finding.remedy))
    show(table)


def examine(store: Path) -> Iterator[Finding]:
    """Yield one finding per check; probes that may crash run in their own process."""
    looks: tuple[Callable[[], Finding], ...] = (
        _system, _torch, _accelerator, _bf16, _deepspeed, _gloo, _compiler,
        lambda: _disk(store), _slurm,
    )  # fmt: skip
    for look in looks:
        yield look()


def _probe(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=PROBE_SECONDS,
        env=os.environ | environment,
    )


def _system() -> Finding:
    found = f"{platform.system()} on {platform.machine()}, Python {platform.python_version()}"
    if platform.system() == "Linux":
        return Finding("system", found)
    return Finding(
        "system",
        found,
        "Sesame is tested on Linux only: with Linux's own calls and DeepSpeed taken away, the data "
        "stages and trainer.strategy=single work; after a kill, look for orphan processes",
    )


def _torch() -> Finding:
    probe = _probe("import torch; print(torch.__version__, torch.get_num_threads())")
    if probe.returncode:
        return Finding("torch", "does not import", "make install, or pip install torch")
    build, threads = probe.stdout.split()
    return Finding("torch", f"{build}, {threads} threads")


def _accelerator() -> Finding:
    probe = _probe(
        "import torch; n = torch.cuda.device_count();"
        "print(f'cuda: {n} × {torch.cuda.get_device_name(0)}' if n else "
        "'mps' if torch.backends.mps.is_available() else 'cpu only')"
    )
    return Finding("accelerator", probe.stdout.strip() or "unknown")


def _bf16() -> Finding:
    code = (
        "import torch; a = torch.randn(64, 64, dtype=torch.bfloat16);"
        "torch.nn.functional.linear(a, a); print('ok')"
    )
    if _probe(code, ONEDNN_MAX_CPU_ISA="ALL").returncode == 0:
        return Finding("bf16 on CPU", "works")
    if _probe(code, ONEDNN_MAX_CPU_ISA="AVX512_CORE_FP16").returncode == 0:
        return Finding(
            "bf16 on CPU",
            "reported as available, but crashes by default",
            "nothing to do for sesame, which limits oneDNN itself; in other programs set "
            "ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16",
        )
    return Finding("bf16 on CPU", "does not work", "use trainer.precision=fp32")


def _deepspeed() -> Finding:
    probe = _probe("import deepspeed", DS_ACCELERATOR="cpu")
    if probe.returncode:
        return Finding(
            "deepspeed",
            "does not import; it exists for Linux only",
            "use trainer.strategy=single or ddp; on Linux: make install",
        )
    return Finding("deepspeed", version("deepspeed"))


def _gloo() -> Finding:
    probe = _probe(
        "import torch.distributed as d, tempfile;"
        "f = tempfile.mktemp();"
        "d.init_process_group('gloo', init_method='file://' + f, rank=0, world_size=1);"
        "d.barrier(); print('ok')"
    )
    if probe.returncode:
        return Finding("gloo", "fails", "set GLOO_SOCKET_IFNAME=lo (or your network interface)")
    return Finding("gloo", "works")


def _compiler() -> Finding:
    found = shutil.which("c++") or shutil.which("g++")
    if found:
        return Finding("C++ compiler", found)
    return Finding("C++ compiler", "none", "only trainer.compile=true needs one: install g++")


def _disk(store: Path) -> Finding:
    folder = store
    while not folder.exists():
        folder = folder.absolute().parent
    free = shutil.disk_usage(folder).free
    remedy = "put paths.store on a larger disk" if free < LOW_DISK else ""
    return Finding("disk for the store", f"{free / 1e9:.0f} GB free at {folder.resolve()}", remedy)


def _slurm() -> Finding:
    return Finding(
        "SLURM", shutil.which("sbatch") or "no sbatch on the path (local runs need none)"
    )
