"""The command that makes a damaged output again."""

from pathlib import Path

import pytest

from pipeline.commands.repair import _command
from pipeline.store.outputs import Store
from pipeline.store.runs import Entry, Runs


@pytest.mark.parametrize(
    ("recorded", "stage", "makes_it"),
    [
        ("sesame export a=1 'b=[2, 3]'", "pretrain", "sesame pretrain a=1 'b=[2, 3]'"),
        ("sesame pretrain a=1", "pretrain", "sesame pretrain a=1"),
        ("sesame run a=1", "pretrain", "sesame run a=1"),
        ("sesame export a=1", "export", "sesame export a=1"),
    ],
)
def test_a_pretraining_is_made_by_a_command_that_pretrains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorded: str, stage: str, makes_it: str
) -> None:
    store = Store(tmp_path)
    output = store.output(stage, "0" * 16)
    entry = Entry(stage, output.fingerprint, label="", command=recorded)
    monkeypatch.setattr(Runs, "names", lambda self: ["mine"])
    monkeypatch.setattr(Runs, "entries", lambda self, name: [entry])
    assert _command(output, store) == makes_it
