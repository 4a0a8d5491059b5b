"""A change of a stage's files needs a new format version."""

import json

import pytest

from pipeline.stages import STAGES
from tests.pipeline.stages.conftest import Recorded
from tests.pipeline.stages.output_forms import GOLDEN, forms

AGAIN = "python -m tests.pipeline.stages.output_forms"


@pytest.mark.parametrize("stage", STAGES)
def test_files_change_their_form_only_with_the_format_version(
    stage: str, recorded: Recorded
) -> None:
    golden = json.loads(GOLDEN.read_text())[stage]
    assert golden["format"] == STAGES[stage].format, f"a new version; write its forms: {AGAIN}"
    found = json.loads(json.dumps(forms(recorded.store)[stage]))
    assert found["files"] == golden["files"], (
        f"raise `format` in pipeline/stages/{stage}.py, so that outputs of the earlier form are "
        f"not taken for new ones; then: {AGAIN}"
    )
