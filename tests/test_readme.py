"""README's commands: those that end soon are run on smoke, the others are composed."""

import re
import shlex
from pathlib import Path

import pytest

from pipeline.commands.arguments import parse
from pipeline.config.compose import compose_config
from tests.conftest import Sesame

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```bash\n(.*?)```", README, re.DOTALL)
COMMANDS = [shlex.split(line, comments=True) for block in BLOCKS for line in block.splitlines()]
SESAME = [words[1:] for words in COMMANDS if words and words[0] == "sesame"]
OWN = (  # keys of `sesame embed`, `fill` and `senses` themselves
    "input", "output", "layers", "weights", "gamma", "text", "top", "word", "sentences", "count",
)  # fmt: skip
QUICK = ("plan", "list", "path", "inspect", "du", "doctor")


def test_readme_shows_both_commands() -> None:
    assert ["make", "demo"] in COMMANDS
    assert ["make", "test"] in COMMANDS


@pytest.mark.parametrize("words", [w for w in COMMANDS if w and w[0] == "make"], ids=" ".join)
def test_make_commands_are_targets(words: list[str]) -> None:
    assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.parametrize("words", [w for w in SESAME if w[0] in QUICK], ids=" ".join)
def test_quick_commands_work(smoke: Sesame, words: list[str]) -> None:
    smoke.succeed(*words)


@pytest.mark.parametrize("words", [w for w in SESAME if w[0] not in QUICK], ids=" ".join)
def test_other_commands_compose(words: list[str]) -> None:
    arguments = parse(words)
    own = [word for word in arguments.overrides if word.partition("=")[0] not in OWN]
    # A sweep is Hydra's to expand: its first point must compose; Optuna's ranges are its own.
    points = [word for word in own if "interval(" not in word and not word.startswith("hydra")]
    compose_config([re.sub(r"=([^\[{,]+),.*", r"=\1", word) for word in points])
