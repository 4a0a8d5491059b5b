"""The board in a real browser: legible at every width, both themes, tables that sort."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.browser.chromium import LEGIBLE, WIDTHS, Browser
from tests.pipeline.board.test_board import html_of, write_store

pytestmark = pytest.mark.browser

SORTED = """
<iframe id="board" src="index.html" style="width:820px;height:900px"></iframe><pre id="found"></pre>
<script>
window.addEventListener("load", () => {
  const page = document.getElementById("board").contentDocument;
  const tables = [...page.querySelectorAll("table.sortable")];
  const sweep = tables.find((table) => table.caption.textContent.startsWith("2026-01-01"));
  const values = () => [...sweep.tBodies[0].rows].map((row) => row.cells[2].textContent);
  const found = [values()];
  const button = sweep.tHead.rows[0].cells[2].querySelector("button");
  for (let n = 0; n < 2; n++) { button.click(); found.push(values()); }
  document.getElementById("found").textContent = JSON.stringify(found);
});
</script>
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("board")
    with pytest.MonkeyPatch.context() as patch:
        html = html_of(write_store(folder / "store"), patch)
    (folder / "index.html").write_text(html)
    return folder / "index.html"


@pytest.fixture(scope="module")
def measured(browser: Browser, page: Path) -> dict[str, dict[str, Any]]:
    return {theme: browser.measure(page, theme == "dark") for theme in ("light", "dark")}


@pytest.mark.parametrize("width", WIDTHS)
def test_everything_fits_and_is_legible(measured: dict[str, Any], width: int) -> None:
    found = measured["light"][str(width)]
    assert found["page_width"] <= width
    assert found["outside"] == []
    assert found["overlaps"] == [], found["overlaps"][:5]
    assert len(found["figures"]) == 4
    for figure in found["figures"]:
        assert figure["width"] >= 250 and figure["text_size"] >= 9 and figure["marks"] > 0, figure


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_stands_out_from_its_ground(measured: dict[str, Any], theme: str) -> None:
    assert measured[theme]["820"]["least_contrast"]["ratio"] >= LEGIBLE


def test_a_click_sorts_a_table(browser: Browser, page: Path) -> None:
    (page.parent / "sorted.html").write_text(SORTED)
    printed = browser.run(False, "--dump-dom", f"file://{page.parent}/sorted.html")
    found = re.search(r'<pre id="found">(.*?)</pre>', printed, re.S)
    assert found and found[1] == ('[["0.5000","0.2500"],["0.2500","0.5000"],["0.5000","0.2500"]]')
