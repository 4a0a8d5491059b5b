"""What a name, a fingerprint's beginning or a folder refers to, and what is refused."""

from pathlib import Path

import pytest

from data_prep.errors import UsageError
from pipeline.commands.stages import _report
from pipeline.config.compose import compose_config
from pipeline.store.outputs import Output, Store
from pipeline.store.references import Folder, Stored, resolve
from pipeline.store.runs import Entry, Runs


def made(store: Store, fingerprint: str, *, done: bool) -> Output:
    """An output of the run `mine`, finished or failed at once."""
    output = store.output("tokenizer", fingerprint)
    request = {"stage": "tokenizer", "config": {}, "upstream": {}}
    output.begin(request)
    if done:
        output.finish(request, {}, {})
    Runs(store).record("mine", [Entry("tokenizer", fingerprint, "tokenizer")], replace=False)
    return output


def test_what_failed_is_not_meant_where_another_output_has_the_name(tmp_path: Path) -> None:
    store = Store(tmp_path)
    failed = made(store, "aaaa000000000000", done=False)
    assert resolve("tokenizer.source", "mine", "tokenizer", store) == Stored(failed, "last")
    first = made(store, "bbbb000000000000", done=True)
    assert resolve("tokenizer.source", "mine", "tokenizer", store) == Stored(first, "last")
    made(store, "bbcc000000000000", done=True)
    with pytest.raises(UsageError, match=r"mine: names 2 outputs.*give one of bbbb0+, bbcc0+"):
        resolve("tokenizer.source", "mine", "tokenizer", store)
    assert resolve("tokenizer.source", "bbbb", "tokenizer", store) == Stored(first, "last")


def test_folders_and_unknown_names(tmp_path: Path) -> None:
    store = Store(tmp_path)
    made(store, "aaaa000000000000", done=True)
    assert resolve("encoder", str(tmp_path), "pretrain", store) == Folder(tmp_path)
    with pytest.raises(UsageError, match=r"encoder=mune: no run.*did you mean mine\?"):
        resolve("encoder", "mune", "pretrain", store)


def test_a_run_wins_over_a_folder_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = Store(tmp_path / "store")
    run = made(store, "aaaa000000000000", done=True)
    for name in ("mine", "model"):
        (tmp_path / name).mkdir()
    for text in ("mine", "mine@last"):
        assert resolve("tokenizer.source", text, "tokenizer", store) == Stored(run, "last")
    for text in ("./mine", "mine/", str(tmp_path / "mine"), "model"):
        found = resolve("tokenizer.source", text, "tokenizer", store)
        assert isinstance(found, Folder) and found.path.samefile(text)
    with pytest.raises(
        UsageError, match=r"encoder=mine: no run with a pretrain.*folder is \./mine"
    ):
        resolve("encoder", "mine", "pretrain", store)


def test_a_run_is_known_by_its_name_or_by_what_it_made(tmp_path: Path) -> None:
    store = Store(tmp_path)
    made(store, "aaaa000000000000", done=True)
    runs = Runs(store)
    assert runs.named("mine", "runs=mine") == runs.named("aaaa00", "runs=aaaa00") == "mine"
    for unknown in ("mune", "bbbb"):
        with pytest.raises(UsageError, match=f"runs={unknown}: no such run"):
            runs.named(unknown, f"runs={unknown}")
    runs.record("other", [Entry("tokenizer", "aaaa000000000000", "tokenizer")], replace=True)
    with pytest.raises(UsageError, match="runs=aaaa: mine, other have such an output; give a name"):
        runs.named("aaaa", "runs=aaaa")


def test_the_present_plan_wins_over_what_a_name_made_before(tmp_path: Path) -> None:
    store = Store(tmp_path)
    first, second = (made(store, f"{letter}" * 16, done=True) for letter in "ab")
    runs = Runs(store)
    runs.record("mine", [Entry("tokenizer", second.fingerprint, "")], replace=True)
    assert resolve("tokenizer.source", "mine", "tokenizer", store) == Stored(second, "last")
    assert resolve("tokenizer.source", "aaaa", "tokenizer", store) == Stored(first, "last")
    runs.record("mine", [Entry("tokenizer", "c" * 16, "")], replace=True)
    with pytest.raises(UsageError, match=r"c{16}.*not made yet.*a{16}, b{16}"):
        resolve("tokenizer.source", "mine", "tokenizer", store)
    runs.record("mine", [Entry("report", "d" * 16, "")], replace=True)  # a plan without the stage
    with pytest.raises(UsageError, match=r"names 2 outputs of tokenizer; give one of a{16}, b{16}"):
        resolve("tokenizer.source", "mine", "tokenizer", store)


def test_a_report_of_a_name_is_about_its_present_plan(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for letter in "ab":
        made(store, letter * 16, done=True)
    Runs(store).record("mine", [Entry("tokenizer", "b" * 16, "")], replace=True)
    _, report = _report(compose_config(["runs=mine", f"paths.store={tmp_path}"]), [])
    assert [item.reference for item in report.inputs.values()] == ["tokenizer/" + "b" * 16]
    with pytest.raises(UsageError, match="runs=aaaa: no such run"):
        Runs(store).named("aaaa", "runs=aaaa")  # an earlier output is not what its run is now
