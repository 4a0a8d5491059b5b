"""Secrets of the environment stay there, and text stays in the folders that hold data."""

import bz2
import gzip
import json
import lzma
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zstandard

from tests.conftest import SECRETS, Sesame

DECOMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.decompress,
    ".bz2": bz2.decompress,
    ".xz": lzma.decompress,
    ".zst": zstandard.ZstdDecompressor().decompress,
}
# Below the store: what holds text by its nature (cleaned pieces are kept for a corpus that grows).
DATA = ("shard", "tokenizer", "examples", "finetune", ".cache/clean")
LENGTH = 30  # bytes out of a sentence's middle: an excerpt would hold them too
CANARIES = 40


def files(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """Every file below, hidden ones included, as it is and decompressed."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = path.read_bytes()
        yield path, content
        if path.suffix in DECOMPRESS:
            yield path, DECOMPRESS[path.suffix](content)
        if path.suffix == ".zip":
            with zipfile.ZipFile(path) as members:
                for name in members.namelist():
                    yield path, members.read(name)


def holders(folder: Path, needles: list[bytes]) -> set[str]:
    """The files that hold any of these bytes."""
    return {
        str(path.relative_to(folder))
        for path, content in files(folder)
        if any(needle in content for needle in needles)
    }


def canaries(texts: Iterator[str]) -> list[bytes]:
    """What no file outside the data can hold by chance: from the middles of some long texts."""
    plain = [
        t for t in texts if len(t) > 3 * LENGTH and t.isascii() and not set(t) & set("\"'<>&\\")
    ]
    return [t[LENGTH : 2 * LENGTH].encode() for t in plain[:: max(1, len(plain) // CANARIES)]]


def corpus_sentences(store: Path) -> Iterator[str]:
    for path in sorted(store.glob("shard/*/*.tar")):
        with tarfile.open(path) as tar:
            for member in tar:
                stream = tar.extractfile(member)
                if member.name.endswith(".txt") and stream is not None:
                    yield from stream.read().decode().splitlines()


def task_inputs(store: Path) -> Iterator[str]:
    for path in sorted(store.glob("finetune/*/predictions.jsonl")):
        for line in path.read_text().splitlines():
            for text in json.loads(line)["inputs"]:
                if isinstance(text, str):
                    yield text


@pytest.fixture(scope="module")
def private(smoke: Sesame, tmp_path_factory: pytest.TempPathFactory) -> Sesame:
    """A user with the smoke run whose page shares no text."""
    user = Sesame(tmp_path_factory.mktemp("private"))
    shutil.copytree(smoke.store, user.store, ignore=shutil.ignore_patterns("report"))
    shutil.copy(smoke.folder / "first_run.txt", user.folder)
    done = user.succeed("report", "experiment=smoke", "share.text=false")
    swept = user.succeed("report", "-m", "runs=smoke", "report.title=a,b")
    assert len(list(user.store.glob("report/*/index.html"))) == 3
    (user.folder / "second_run.txt").write_text(done.stderr + done.stdout + swept.stdout)
    return user


def test_a_secret_of_the_environment_is_in_no_file(smoke: Sesame) -> None:
    assert list(smoke.store.glob("pretrain/*/.tracking/wandb/offline-run-*/*.wandb"))
    assert holders(smoke.folder, [secret.encode() for secret in SECRETS.values()]) == set()


@pytest.mark.parametrize("read", [corpus_sentences, task_inputs], ids=["corpus", "tasks"])
def test_text_stays_where_data_is(private: Sesame, read: Callable[[Path], Iterator[str]]) -> None:
    needles = canaries(read(private.store))
    assert len(needles) >= CANARIES
    found = holders(private.folder, needles)
    assert found, "the canaries are nowhere, not even in the data"
    allowed = tuple(f"store/{folder}/" for folder in DATA)
    assert {name for name in found if not name.startswith(allowed)} == set()


def test_an_exported_folder_holds_no_facts_of_the_run(smoke: Sesame) -> None:
    (folder,) = (path for path in (smoke.store / "export").iterdir() if path.is_dir())
    (facts,) = (smoke.store / "run_facts" / "export").iterdir()
    told = json.loads(facts.read_text())
    assert facts.stem == folder.name and told["seconds"] > 0
    needles = [str(smoke.folder), told["started"], told["finished"], f'"{told["host"]}"', '"host"']
    assert holders(folder, [needle.encode() for needle in needles]) == set()


def test_errors_give_the_place_and_never_the_text(sesame: Sesame) -> None:
    canary = "Canary Quillfeather"
    notes, task = sesame.folder / "notes.jsonl", sesame.folder / "task"
    task.mkdir()
    notes.write_text(f'{{"text": "{canary} sings."}}\n{{"text": "{canary} \n')
    (task / "train.tsv").write_text(f"sentence\tlabel\n{canary} sings\t1\n{canary}\t1\tagain\n")
    shutil.copy(task / "train.tsv", task / "dev.tsv")
    corpus = ("experiment=bert_mini", f"corpus.paths={notes}")
    made = sesame.succeed("shard", *corpus)
    failed = sesame("finetune", *corpus, "encoder=tfidf", "task=sst2", f"task.data_dir={task}")
    assert failed.returncode == 1, failed.stderr
    assert "notes.jsonl, byte 39: malformed_json" in made.stderr
    assert "train.tsv:3: 3 columns" in failed.stderr
    assert canary not in made.stdout + made.stderr + failed.stdout + failed.stderr
    found = holders(sesame.store, [canary.encode()])
    assert found
    assert all(name.startswith(tuple(f"{folder}/" for folder in DATA)) for name in found)


def test_names_of_labels_are_in_models_and_fine_tunings_only(private: Sesame) -> None:
    """A model needs them. Dashboards, manifests, cards and pages do not."""
    canary = "Canary Quillfeather"
    (private.folder / "notes").mkdir()
    rows = [f"a note about case {n}\t{canary if n % 2 else 'none'}" for n in range(120)]
    table = "\n".join(["note\tfinding", *rows, ""])
    (private.folder / "notes" / "train.tsv").write_text(table)
    task = [
        "task.name=notes", "task.data_dir=notes", "task.train=train.tsv", "task.text_a=note",
        "task.label=finding", "finetune.epochs=1",
    ]  # fmt: skip
    tuned = private.succeed("finetune", "experiment=smoke", "encoder=smoke", "name=labelled", *task)
    shown = private.succeed("report", "runs=labelled", "share.text=false")
    assert canary not in tuned.stdout + tuned.stderr + shown.stdout + shown.stderr
    found = holders(private.store, [canary.encode()])
    assert {Path(name).parts[0] for name in found} == {"finetune", "model"}
    names = {Path(name).name for name in found}
    assert names == {"predictions.jsonl", "scores.json", "finetuned.json"}
