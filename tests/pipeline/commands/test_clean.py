"""`sesame list` and `clean`: a name keeps what it made, and removals say what they cost."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from data_prep.errors import SesameError
from pipeline.commands import stages
from pipeline.commands.arguments import Arguments
from pipeline.commands.clean import clean
from pipeline.commands.list import list_runs
from pipeline.store.lease import lease
from pipeline.store.outputs import LEASE, Output, Store, run_facts_path
from pipeline.store.runs import Entry, Runs

ROOT = Path(__file__).parents[3]


def begun(store: Store, stage: str, letter: str, *before: Output) -> Output:
    """An output on which work has started."""
    output = store.output(stage, letter * 16)
    output.begin(_request(stage, before))
    return output


def made(store: Store, stage: str, letter: str, *before: Output, seconds: float = 1.0) -> Output:
    """A finished output."""
    output = begun(store, stage, letter, *before)
    (output.path / "data.bin").write_bytes(b"work")
    output.finish(_request(stage, before), {}, {"seconds": seconds, "host": "here"})
    return output


def _request(stage: str, before: tuple[Output, ...]) -> dict[str, object]:
    config = {"trainer": {"max_steps": 12}}
    upstream = {each.stage: each.reference for each in before}
    return {"stage": stage, "format": 1, "config": config, "upstream": upstream, "files_read": {}}


def entries(*outputs: Output) -> list[Entry]:
    return [Entry(output.stage, output.fingerprint, "") for output in outputs]


def cleaned(store: Store, **options: str) -> None:
    words = {f"--{name.replace('_', '-')}": value for name, value in options.items()}
    clean(Arguments("clean", [], [f"paths.store={store.root}"], words))


@pytest.mark.parametrize("options", [{"--until": "shard"}, {}], ids=["partial", "failed"])
def test_a_name_keeps_what_it_finished(
    options: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)
    pretraining = made(store, "pretrain", "a", made(store, "examples", "b"))
    Runs(store).record("smoke", entries(pretraining), replace=True)

    def fail(*arguments: object) -> None:
        raise SesameError("no room")

    monkeypatch.setattr(stages, "execute_all", fail)
    words = ["experiment=smoke", f"paths.store={tmp_path}"]
    with pytest.raises(SesameError, match="no room"):
        stages.run(Arguments("run", [], words, options))
    cleaned(store, yes="")
    assert pretraining.is_done
    assert store.output("examples", "b" * 16).is_done
    recorded = Runs(store).entries("smoke")
    assert [e.fingerprint for e in recorded if not e.is_current] == [pretraining.fingerprint]
    current = {entry.stage for entry in recorded if entry.is_current}
    assert {"shard", "pretrain", "report"} <= current  # the whole plan, whatever was chosen of it


def test_what_never_began_is_not_kept_as_earlier(tmp_path: Path) -> None:
    runs = Runs(Store(tmp_path))
    runs.record("mine", [Entry("shard", "0" * 16, "")], replace=True)
    runs.record("mine", [Entry("shard", "1" * 16, "")], replace=True)
    assert runs.entries("mine") == [Entry("shard", "1" * 16, "")]


def test_a_file_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    old = {"name": "mine", "outputs": [{"stage": "shard", "fingerprint": "a" * 16, "label": ""}]}
    (tmp_path / "runs" / "mine.json").write_text(json.dumps(old))
    assert Runs(Store(tmp_path)).entries("mine") == [Entry("shard", "a" * 16, "", is_current=True)]


def test_a_removal_says_what_it_costs_to_make_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(tmp_path)
    finished = made(store, "shard", "a", seconds=4000.0)
    half = begun(store, "pretrain", "b")
    for step in (3, 6):
        folder = half.path / "checkpoints" / f"{step:08}"
        folder.mkdir(parents=True)
    pieces = begun(store, "examples", "c")
    (pieces.path / ".pieces" / "0001").mkdir(parents=True)
    cleaned(store)
    said = capsys.readouterr().out.replace("\u202f", " ").splitlines()
    lines = {each.reference: line for each in (finished, half, pieces)
             for line in said if str(each.path) in line}  # fmt: skip
    assert lines[finished.reference].endswith("it took 1 h 6 min to make")
    assert lines[half.reference].endswith("unfinished, step 6 of 12")
    assert lines[pieces.reference].endswith("unfinished, 1 pieces made")
    assert finished.is_done
    cleaned(store, yes="")
    assert not any(output.path.exists() for output in (finished, half, pieces))


def test_a_run_being_made_keeps_its_inputs_though_it_is_forgotten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(tmp_path)
    shard = made(store, "shard", "a")
    examples = made(store, "examples", "b", shard)
    training = begun(store, "pretrain", "c", examples)
    other = made(store, "vectors", "d", shard)
    Runs(store).record("mine", entries(shard, examples, training, other), replace=True)
    with lease(training.path / LEASE, lambda: False, lambda text: None):
        cleaned(store, forget="mine", yes="")
        assert shard.is_done and examples.is_done and training.is_begun
        assert not other.path.exists()
        assert f"kept {training.path}" in capsys.readouterr().out
    cleaned(store, yes="")
    assert not any(output.path.exists() for output in (shard, examples, training))


def test_what_a_killed_removal_left_is_no_output_and_goes(tmp_path: Path) -> None:
    store = Store(tmp_path)
    output = made(store, "shard", "a")
    left = output.path.rename(output.path.with_name(f".{output.fingerprint}.removed"))
    assert list(store.outputs("shard")) == []
    cleaned(store, yes="")
    assert not left.exists()


def test_only_earlier_outputs_can_be_forgotten(tmp_path: Path) -> None:
    store = Store(tmp_path)
    old, new = made(store, "shard", "a"), made(store, "shard", "b")
    for output in (old, new):
        Runs(store).record("mine", entries(output), replace=True)
    cleaned(store, forget_earlier="mine", yes="")
    assert (old.path.exists(), new.path.exists()) == (False, True)
    assert Runs(store).entries("mine") == entries(new)


def test_facts_of_an_export_lie_outside_of_its_folder(tmp_path: Path) -> None:
    store = Store(tmp_path)
    output = made(store, "export", "a", seconds=5.0)
    assert {path.name for path in output.path.iterdir()} == {"data.bin", "manifest.json"}
    facts = run_facts_path(output.path)
    assert json.loads(facts.read_text())["seconds"] == 5.0
    cleaned(store, yes="")
    assert not facts.exists()


def test_the_list_tells_what_is_next_from_what_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(tmp_path)
    shard = made(store, "shard", "a")
    Runs(store).record("next", [*entries(shard), Entry("pretrain", "b" * 16, "")], replace=True)
    half = begun(store, "examples", "c")
    Runs(store).record("half", entries(shard, half), replace=True)
    for output in (shard, made(store, "shard", "d")):
        Runs(store).record("twice", entries(output), replace=True)
    list_runs(Arguments("list", [], [f"paths.store={tmp_path}"], {}))
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "pretrain not begun" in lines["next"]
    assert "examples stopped, started" in lines["half"]
    assert "1 and 1 earlier" in lines["twice"] and "done" in lines["twice"]


def test_make_clean_leaves_the_store(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in ("store/shard", ".venv/bin", "wheelhouse", ".pytest_cache"):
        (tmp_path / name).mkdir(parents=True)
    done = subprocess.run(["make", "clean"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"Makefile", "store"}
    assert "the store stays" in done.stdout
