"""The stages as the workflow is handed them."""

import subprocess
import sys
from dataclasses import fields

from pipeline.commands.catalogue import COMMANDS
from pipeline.config.schema import Config
from pipeline.stages import STAGES
from pipeline.workflow.stage import STAGE_ORDER


def test_every_stage_has_its_place_and_its_command() -> None:
    assert tuple(STAGES) == STAGE_ORDER
    assert all(stage.name == name for name, stage in STAGES.items())
    assert STAGES.keys() <= COMMANDS.keys()


def test_a_stage_names_sections_of_the_configuration() -> None:
    sections = {item.name for item in fields(Config)}
    for stage in STAGES.values():
        assert {*stage.sections, *stage.obeyed} <= sections


def test_importing_all_stages_imports_no_heavy_library() -> None:
    """Help and usage errors need the stages, and must answer at once."""
    heavy = ("torch", "numba", "transformers", "pyarrow")
    code = f"import sys, pipeline.stages; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
