"""The report in a real browser: nothing overflows or overlaps, all figures show, both themes read.

The page itself runs no script, so a harness beside it frames it at several widths, measures, and
leaves what it found as JSON in its own document, which headless Chromium prints.
"""

import html
import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.reported import WORDS, SampleRun, make_page, write_two_runs

pytestmark = pytest.mark.browser

WIDTHS = (320, 360, 820, 1400)
LEGIBLE = 4.5  # contrast of text, WCAG AA
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--allow-file-access-from-files", "--hide-scrollbars",
)  # fmt: skip
HARNESS = Path(__file__).with_name("harness.html")


@dataclass(frozen=True)
class Browser:
    """Chromium, started anew for every page."""

    program: str
    profiles: Path

    def measure(self, page: Path, dark: bool) -> dict[str, Any]:
        """What the harness found out about a page, by width."""
        shutil.copy(HARNESS, page.parent / "harness.html")
        printed = self.run(dark, "--dump-dom", f"file://{page.parent}/harness.html")
        found = re.search(r'<pre id="found">(.*?)</pre>', printed, re.S)
        assert found and found[1], f"the harness found nothing:\n{printed[-2000:]}"
        measured: dict[str, Any] = json.loads(html.unescape(found[1]))
        return measured

    def run(self, dark: bool, *arguments: str) -> str:
        """Start, wait, and return what it printed."""
        profile = self.profiles / f"{len(list(self.profiles.iterdir()))}"
        scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
        command = [self.program, *FLAGS, scheme, f"--user-data-dir={profile}", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Browser:
    """Debian's Chromium; its absence fails only where SESAME_REQUIRE_BROWSER=1."""
    program = shutil.which("chromium")
    if program is None:
        said = "chromium is not installed; apt-get install chromium"
        if os.environ.get("SESAME_REQUIRE_BROWSER") == "1":
            pytest.fail(said)
        pytest.skip(said)
    return Browser(program, tmp_path_factory.mktemp("profiles"))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a whole run beside two smaller ones: every kind of block and figure."""
    folder = tmp_path_factory.mktemp("page")
    run = write_two_runs(folder / "store")
    compared = run.inputs
    run.inputs = {}
    run.write_all()
    run.inputs = {f"whole/{role}": path for role, path in run.inputs.items()} | compared
    return make_page(run, folder / "out", share_text=True) / "index.html"


@pytest.fixture(scope="module")
def measured(browser: Browser, page: Path) -> dict[str, dict[str, Any]]:
    """What the harness found, by theme."""
    return {theme: browser.measure(page, theme == "dark") for theme in ("light", "dark")}


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_wider_than_the_screen(measured: dict[str, Any], width: int) -> None:
    found = measured["light"][str(width)]
    assert found["page_width"] <= width
    assert found["outside"] == []


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_lies_over_something_else(measured: dict[str, Any], width: int) -> None:
    overlaps = measured["light"][str(width)]["overlaps"]
    assert overlaps == [], overlaps[:5]


@pytest.mark.parametrize("width", WIDTHS)
def test_every_figure_shows_legible_text(measured: dict[str, Any], page: Path, width: int) -> None:
    figures = measured["light"][str(width)]["figures"]
    assert len(figures) == len(list(page.parent.glob("*.svg"))) > 20
    for figure in figures:
        assert figure["width"] >= 250 and figure["height"] >= 90, figure
        assert figure["text_size"] >= 9, figure
        assert figure["marks"] > 0, figure


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_stands_out_from_its_ground(measured: dict[str, Any], theme: str) -> None:
    found = measured[theme]["820"]
    assert (found["ground"] > 0.5) == (theme == "light")
    assert found["least_contrast"]["ratio"] >= LEGIBLE, found["least_contrast"]


def test_hostile_names_are_shown_as_text(browser: Browser, tmp_path: Path) -> None:
    hostile = "<script>document.title='owned'</script> \"quoted\" \u202eאבג 🦊"
    words = [hostile.replace(" ", ""), *WORDS]
    run = SampleRun(tmp_path / "store", words)
    run.write_examples(run.write_tokenizer())
    for seed in (1, 2):
        for labels in (40, 400):
            run.write_finetuning(hostile, "x" * 90, seed, labels=labels)
            run.write_finetuning("mentions", hostile, seed, labels=labels)
    run.write_layers(hostile, hostile)
    page = make_page(run, tmp_path / "out", share_text=True, title=hostile) / "index.html"
    found = browser.measure(page, dark=False)
    for width in WIDTHS:
        assert found[str(width)]["title"] == hostile
        assert found[str(width)]["heading"] == hostile
        assert found[str(width)]["scripts"] == 0
        assert found[str(width)]["page_width"] <= width
        assert found[str(width)]["outside"] == found[str(width)]["overlaps"] == []


def test_the_page_prints(browser: Browser, page: Path, tmp_path: Path) -> None:
    browser.run(True, f"--print-to-pdf={tmp_path / 'page.pdf'}", f"file://{page}")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")
