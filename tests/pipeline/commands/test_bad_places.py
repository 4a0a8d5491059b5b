"""Stores, names and files that cannot be used get one sentence."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.commands.main import run
from tests.conftest import Sesame
from tests.small_disk import require, resize, small_disk
from tests.test_data_stages import GOLDEN, SMALL, digest, write_texts


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["paths.store=file"], 2, "paths.store=file: is a file; name a folder"),
        (["paths.store=file/below"], 1, "Not a directory: file/below"),
        ([f"paths.store={'s' * 300}"], 1, "File name too long"),
        ([f"name={'n' * 300}"], 2, "name=nnnnnnnnnnnnnnnnnnnn…: use at most 100 characters"),
        (["corpus.paths=7"], 2, "corpus.paths=[7]: must be a path or a list of paths"),
        (["corpus.paths=[a,7]"], 2, "must be a path or a list of paths"),
        (["corpus.paths=null", "corpus.sources.a=7"], 2, "corpus.sources.a=7: must be a path"),
        (["corpus.paths=null"], 2, "corpus.paths is empty"),
        (["encoder=7"], 2, "encoder=7: must be one encoder"),
        (["paths.store=\udcff"], 2, "argument 3: is not valid UTF-8"),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(
    words: list[str],
    code: int,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    write_texts(tmp_path / "texts")
    Path("file").write_text("not a folder")
    assert run(["shard", "experiment=bert_tiny", *words, *_texts(words)]) == code
    said = capsys.readouterr().err
    assert says in said and len(said.splitlines()) <= 3


def _texts(words: list[str]) -> list[str]:
    return [] if any(word.startswith("corpus.paths") for word in words) else ["corpus.paths=texts"]


def test_a_store_of_the_environment_must_be_text(tmp_path: Path) -> None:
    environment = {os.fsencode(key): os.fsencode(value) for key, value in os.environ.items()}
    done = subprocess.run(
        [sys.executable, "-m", "pipeline.commands.main", "list"],
        cwd=tmp_path, env=environment | {b"SESAME_STORE": b"st\xffore"}, capture_output=True,
    )  # fmt: skip
    assert done.returncode == 2 and b"paths.store: the path is not valid UTF-8" in done.stderr


def test_a_file_whose_name_is_no_text_is_not_read_and_named(sesame: Sesame) -> None:
    write_texts(sesame.folder / "texts")
    (sesame.folder / "texts" / "b\udcffd.txt").write_text("Never read.")
    said = sesame.succeed("shard", *SMALL).stderr
    assert "1 file is not read: b\\udcffd.txt (the name is not valid UTF-8; rename it)" in " ".join(
        said.split()
    )
    [made] = sesame.store.glob("shard/*")
    assert "b\\udcffd" not in (made / "manifest.json").read_text()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"outputs": 3}', '{"outputs": [{"a": 1}]}'])
def test_a_damaged_run_is_named(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "mine.json").write_text(text)
    assert run(["list", f"paths.store={tmp_path}"]) == 1
    assert "runs/mine.json: is damaged; move it away" in capsys.readouterr().err


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EIO, errno.ESTALE])
def test_errors_of_the_disk_name_path_and_remedy(
    number: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(self: Path, *given: object, **options: object) -> None:
        raise OSError(number, os.strerror(number), str(self))

    write_texts(tmp_path / "texts")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Path, "mkdir", fail)
    assert run(["shard", *SMALL]) == 1
    said = capsys.readouterr().err
    assert f"sesame shard: {os.strerror(number)}: store/" in said
    assert "then run the same command again; what is finished is kept" in said


def test_a_read_only_disk_is_said(tmp_path: Path) -> None:
    user = Sesame(tmp_path)
    write_texts(tmp_path / "texts")
    with small_disk(user.store, 4000) as mounted:
        require(mounted)
        subprocess.run(["mount", "-o", "remount,ro", user.store], check=True)
        done = user("shard", *SMALL)
        assert done.returncode == 1 and "Read-only file system: store/" in done.stderr
        assert "Traceback" not in done.stderr
        assert user("plan", *SMALL).returncode == 0  # it only looks
        assert user("list").returncode == 0


def test_a_disk_that_fills_in_examples_is_named_with_the_path(tmp_path: Path) -> None:
    """NumPy's own writing says `500 requested and 12 written`, without number or name."""
    user = Sesame(tmp_path)
    write_texts(tmp_path / "texts")
    with small_disk(user.store, 10_000) as mounted:
        require(mounted)
        user.succeed("tokenizer", *SMALL)
        used = sum(path.stat().st_blocks for path in user.store.rglob("*")) // 2
        for more in (30, 100):
            resize(user.store, used + more)
            failed = user("examples", *SMALL)
            assert failed.returncode == 1, failed.stderr
            assert "No space left on device: " in failed.stderr, failed.stderr
            assert "device: the store" not in failed.stderr
            assert "Traceback" not in failed.stderr
        resize(user.store, 10_000)
        user.succeed("examples", *SMALL)
        [made] = user.store.glob("examples/*")
        assert digest(made) == GOLDEN["examples"]
