"""What a plan says on a terminal."""

from pathlib import Path

from rich.console import Console

from pipeline.config.schema import Config
from pipeline.stages import STAGES
from pipeline.store.outputs import Store
from pipeline.workflow.plan import PlanRow, as_table
from pipeline.workflow.stage import Node


def test_brackets_in_labels_and_notes_are_shown_as_they_are(tmp_path: Path) -> None:
    output = Store(tmp_path).output("finetune", "0123456789abcdef")
    node = Node(STAGES["finetune"], "encoder=[glove,mine]", Config(), {}, {}, output)
    note = "unlike 89abcdef: notes[/old].txt changed; corpus.paths [a] → [b]"
    console = Console(width=200, record=True)
    console.print(as_table([PlanRow(node, "new", note)]))
    said = console.export_text()
    assert "finetune encoder=[glove,mine]" in said
    assert note in said
