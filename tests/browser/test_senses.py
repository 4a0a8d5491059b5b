"""The page of a word's senses in a real browser: on a phone as on a desk, sentences on hover."""

from typing import Any

import numpy as np
import pytest

from pipeline.inference.senses import Senses, read_occurrences
from pipeline.inference.senses.compare import view
from pipeline.inference.senses.page import write_senses
from tests.browser.chromium import LEGIBLE, WIDTHS, Browser

pytestmark = pytest.mark.browser

HOSTILE = "<script>document.title='owned'</script> \"&quot;\" \u202eאבג 🦊"
LABELS = [f"{HOSTILE} 0", f"{'w' * 50} 1"]


@pytest.fixture(scope="module")
def measured(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the harness found on a page with hostile sentences, labels and encoders, by theme."""
    folder = tmp_path_factory.mktemp("senses")
    sentences = "".join(f"{HOSTILE} the bank {n}\t{LABELS[n % 2]}\n" for n in range(20))
    (folder / "bank.tsv").write_text(sentences)
    vectors = np.random.default_rng(0).normal(size=(20, 3, 8)).astype(np.float32)
    names = [HOSTILE, "x" * 60]
    views = [view(name, vectors + n, np.arange(20) % 2) for n, name in enumerate(names)]
    found = read_occurrences(folder / "bank.tsv", "bank")
    write_senses(Senses("bank", found, LABELS, views), HOSTILE, True, folder / "page")
    page = folder / "page" / "index.html"
    return {theme: browser.measure(page, theme == "dark") for theme in ("light", "dark")}


@pytest.mark.parametrize("width", WIDTHS)
def test_every_figure_fits_and_is_legible(measured: dict[str, Any], width: int) -> None:
    found = measured["light"][str(width)]
    assert found["page_width"] <= width
    assert found["outside"] == []
    assert found["overlaps"] == [], found["overlaps"][:5]
    assert len(found["figures"]) == 9, "two best layers, accuracy by layer, twice three layers"
    for figure in found["figures"]:
        assert figure["width"] >= 250 and figure["height"] >= 90, figure
        assert figure["text_size"] >= 9 and figure["marks"] > 0, figure


def test_sentences_show_on_hover_as_text(measured: dict[str, Any]) -> None:
    found = measured["light"]["360"]
    assert found["scripts"] == 0 and found["title"] == "Senses of “bank”"
    notes = [figure["notes"] for figure in found["figures"] if figure["notes"]]
    assert len(notes) == 8
    for shown in notes:
        assert shown == [
            f"{LABELS[n % 2]}, line {n + 1}: {HOSTILE} the »bank« {n}" for n in range(20)
        ]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_stands_out_from_its_ground(measured: dict[str, Any], theme: str) -> None:
    assert measured[theme]["820"]["least_contrast"]["ratio"] >= LEGIBLE
