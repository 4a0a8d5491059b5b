"""One Chromium for all pages."""

import os
import shutil

import pytest

from tests.browser.chromium import Browser


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Browser:
    """Debian's Chromium; its absence fails only where SESAME_REQUIRE_BROWSER=1."""
    program = shutil.which("chromium")
    if program is None:
        said = "chromium is not installed; apt-get install chromium"
        if os.environ.get("SESAME_REQUIRE_BROWSER") == "1":
            pytest.fail(said)
        pytest.skip(said)
    return Browser(program, tmp_path_factory.mktemp("profiles"))
