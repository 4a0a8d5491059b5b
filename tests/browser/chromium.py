"""Headless Chromium, and what it measures of a page at several widths.

Our pages run no script, so a harness beside the page frames it, measures, and leaves what it found
as JSON in its own document, which Chromium prints.
"""

import html
import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
