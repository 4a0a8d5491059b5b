"""The report in a real browser: nothing overflows or overlaps, figures show, both themes read."""

from pathlib import Path
from typing import Any

import pytest

from tests.browser.chromium import LEGIBLE, WIDTHS, Browser
from tests.pipeline.reported import WORDS, SampleRun, make_page, write_two_runs

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a whole run beside two smaller ones: every kind of block and figure."""
    folder = tmp_path_factory.mktemp("page")
    run = write_two_runs(folder / "store")
    compared = run.inputs
    run.inputs = {}
    run.write_all()
    run.write_model("mentions")
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
