import subprocess
import sys

from pipeline.bench.usage import peak_bytes

CHILD = """
from pipeline.bench.usage import peak_bytes
before = peak_bytes()
block = b"x" * 50_000_000
print(before, peak_bytes() - before)
"""


def test_a_process_is_not_charged_for_the_one_that_started_it() -> None:
    block = b"x" * 400_000_000
    assert peak_bytes() > len(block)
    said = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=True)
    before, grown = map(int, said.stdout.split())
    assert before < 200_000_000
    assert 45_000_000 < grown < 60_000_000
