"""A report about named runs has all that belongs to them."""

from pathlib import Path

from pipeline.commands.stages import _report
from pipeline.compose import compose_config
from pipeline.runs import Entry, Runs
from pipeline.store import Store


def test_fine_tunings_of_one_label_are_all_reported(tmp_path: Path) -> None:
    """`sesame finetune` for one task after another gives a run outputs without labels."""
    store = Store(tmp_path)
    entries = []
    for task in ("sst2", "stsb"):
        output = store.output("finetune", f"{task:0<16}")
        request = {"stage": "finetune", "config": {"task": {"name": task}}, "upstream": {}}
        output.begin(request)
        output.finish(request, {}, {})
        entries.append(Entry("finetune", output.fingerprint, ""))
    Runs(store).record("mine", entries, replace=True)
    _, report = _report(compose_config(["runs=mine", f"paths.store={tmp_path}"]), [])
    assert {item.path for item in report.inputs.values()} == {
        store.output("finetune", entry.fingerprint).path for entry in entries
    }
