"""Device lines that the pretended device cannot reach stand in docs/cluster.md with their check."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("data", "models", "training")  # what a training step is made of
OUT_OF_REACH = re.compile(
    r"torch\.cuda\.|pin_memory\(|\"nccl\"|_flash_attention_forward\(|torch\.lstm\(|"
    r"torch\.Generator\(device\)|torch\.autocast\(self\.device|optimizer\.found_inf ="
)


def test_every_device_line_out_of_reach_is_listed_with_the_check_that_runs_it() -> None:
    files = [path for room in ROOMS for path in (ROOT / "pipeline" / room).rglob("*.py")]
    found = {
        str(path.relative_to(ROOT))
        for path in files
        if OUT_OF_REACH.search(path.read_text()) and path.name != "environment.py"  # probes a CPU
    }
    page = (ROOT / "docs" / "cluster.md").read_text()
    listed = set(re.findall(r"^\| `(pipeline/[\w/]+\.py)` \|", page, re.MULTILINE))
    assert found == listed
