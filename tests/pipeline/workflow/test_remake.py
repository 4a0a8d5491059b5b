"""`--force`: an output is made again beside the old one, and replaces it when it is done."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from data_prep.errors import SesameError
from pipeline.config.schema import Config
from pipeline.store import remaking
from pipeline.store.content import Checksums
from pipeline.store.lease import lease
from pipeline.store.outputs import LEASE, Store, fingerprint, run_facts_path
from pipeline.store.remaking import OUTDATED, beside, remade_inputs
from pipeline.store.verify import find_faults
from pipeline.workflow.execute import execute, execute_all, remake
from pipeline.workflow.plan import plan
from pipeline.workflow.stage import Input, Node, Request, Stage, Work
from tests.conftest import Sesame
from tests.test_data_stages import SMALL, write_texts


class Written(Stage):
    """A stage that writes what a function of the test returns."""

    format, sections = 1, ()

    def __init__(self, name: str, text: Callable[[], str]) -> None:
        self.name = name  # type: ignore[misc]
        self.text = text

    def inputs(self, config: Config) -> dict[str, Request]:
        return {}

    def run(self, work: Work) -> dict[str, Any]:
        (work.out / "file").write_text(self.text())
        return {}


def node_of(store: Store, stage: Written, *inputs: Node) -> Node:
    needed = {n.stage: Input(n.output.reference, n.output.path) for n in inputs}
    request: dict[str, Any] = {
        "stage": stage.name, "format": 1, "config": {}, "files_read": {},
        "upstream": {role: item.reference for role, item in needed.items()},
    }  # fmt: skip
    output = store.output(stage.name, fingerprint(request))
    return Node(stage, "", Config(), needed, request, output)


class Chain:
    """An export, a page made from it, and an output that has nothing to do with them."""

    def __init__(self, root: Path) -> None:
        self.store = Store(root)
        self.content = "first"
        self.first = node_of(self.store, Written("export", lambda: self.content))
        self.second = node_of(self.store, Written("report", lambda: self.content), self.first)
        self.other = node_of(self.store, Written("shard", lambda: "other"))
        self.nodes = [self.other, self.first, self.second]
        execute_all(self.nodes)

    def states(self) -> dict[str, str]:
        return {row.node.stage: row.state for row in plan(self.nodes, self.store)}


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    return Chain(tmp_path)


def assert_whole(chain: Chain) -> None:
    """Every output is what its manifest says, and nothing lies beside it."""
    for node in chain.nodes:
        assert list(find_faults(node.output, Checksums.empty(chain.store.root), full=True)) == []
        names = {path.name for path in node.output.path.parent.iterdir()}
        assert names == {node.output.fingerprint}
    facts = list((chain.store.root / "run_facts" / "export").iterdir())
    assert facts == [run_facts_path(chain.first.output.path)]


def test_the_old_output_is_there_until_the_new_one_is_done(chain: Chain) -> None:
    seen = []

    def text() -> str:
        seen.append((chain.first.output.is_done, (chain.first.output.path / "file").read_text()))
        return "second"

    chain.first.maker.text = text  # type: ignore[attr-defined]
    remake(chain.first)
    assert seen == [(True, "first")]
    assert (chain.first.output.path / "file").read_text() == "second"
    assert chain.states() == {"shard": "done", "export": "done", "report": "outdated"}
    assert remade_inputs(chain.second.output) == [chain.first.output.reference]
    (row,) = plan([chain.second], chain.store)
    assert row.note == f"made before {chain.first.output.reference}; --force makes it again"
    assert_whole(chain)
    remake(chain.second)
    assert chain.states() == {"shard": "done", "export": "done", "report": "done"}


def test_the_same_content_outdates_nothing(
    chain: Chain, capsys: pytest.CaptureFixture[str]
) -> None:
    remake(chain.first)
    assert "with the same content; what was made from it stays" in capsys.readouterr().err
    assert chain.states() == {"shard": "done", "export": "done", "report": "done"}
    assert_whole(chain)


def test_all_that_is_asked_for_is_made_again_in_order(chain: Chain) -> None:
    chain.content = "second"
    execute_all(chain.nodes, again=[chain.first, chain.second])
    assert chain.states() == {"shard": "done", "export": "done", "report": "done"}
    assert (chain.second.output.path / "file").read_text() == "second"


def test_a_failure_leaves_the_old_output(chain: Chain) -> None:
    def fail() -> str:
        raise SesameError("it broke")

    chain.first.maker.text = fail  # type: ignore[attr-defined]
    with pytest.raises(SesameError, match="it broke"):
        remake(chain.first)
    assert (chain.first.output.path / "file").read_text() == "first"
    assert chain.states() == {"shard": "done", "export": "done", "report": "done"}


@pytest.mark.parametrize("step", ["move the old", "move the new", "remove the old"])
def test_a_kill_at_any_step_of_the_swap_loses_neither(
    step: str, chain: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the moment, the next command finds the old output or the new one."""
    rename, remove = os.rename, shutil.rmtree

    def killed_rename(source: Path, target: Path) -> None:
        if step == ("move the new" if target == chain.first.output.path else "move the old"):
            raise KeyboardInterrupt
        rename(source, target)

    def killed_remove(path: Path, ignore_errors: bool = False) -> None:
        if step == "remove the old" and not ignore_errors:
            raise KeyboardInterrupt
        remove(path, ignore_errors)

    chain.content = "second"
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(remaking.os, "rename", killed_rename)
        patch.setattr(remaking.shutil, "rmtree", killed_remove)
        remake(chain.first)
    execute(chain.first)
    is_new = step != "move the old"
    assert (chain.first.output.path / "file").read_text() == ("second" if is_new else "first")
    assert chain.states() == {"shard": "done", "export": "done", "report": "outdated"}
    remake(chain.first)
    assert (chain.first.output.path / "file").read_text() == "second"
    assert_whole(chain)


def test_an_output_that_is_being_made_is_not_made_again(chain: Chain) -> None:
    with (
        lease(chain.first.output.path / LEASE, lambda: False, print),
        pytest.raises(SesameError, match="works on it; wait for its end, then use --force again"),
    ):
        remake(chain.first)
    assert not beside(chain.first.output).path.exists()


def test_a_new_output_is_made_as_ever(tmp_path: Path) -> None:
    node = node_of(Store(tmp_path), Written("shard", lambda: "new"))
    remake(node)
    assert node.output.is_done and not (node.output.path / OUTDATED).exists()
    execute(node)


def test_force_on_the_command_line(sesame: Sesame) -> None:
    write_texts(sesame.folder / "texts")
    words = [*SMALL, "corpus.workers=1", "tokenizer.workers=1"]
    sesame.succeed("tokenizer", *words)
    (made,) = (sesame.store / "tokenizer").iterdir()
    before = (made / "manifest.json").stat()
    done = sesame.succeed("tokenizer", *words, "--force")
    assert "again" in done.stderr and "the same content" in done.stderr
    assert [path.name for path in (sesame.store / "tokenizer").iterdir()] == [made.name]
    assert (made / "manifest.json").stat().st_mtime_ns > before.st_mtime_ns
    refused = sesame("examples", *words, "--force", "--share=0/2")
    assert refused.returncode == 2 and "--force: makes a whole output again" in refused.stderr
