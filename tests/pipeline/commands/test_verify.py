"""`sesame verify` and `repair`, and commands that meet a damaged output."""

import os
import shutil
from pathlib import Path

import pytest

from data_prep.files import sha256
from tests.conftest import Sesame
from tests.test_data_stages import SMALL, write_texts


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Sesame:
    """A user who has made shards, a tokenizer and examples."""
    user = Sesame(tmp_path_factory.mktemp("whole"))
    write_texts(user.folder / "texts")
    user.succeed("examples", *SMALL)
    return user


@pytest.fixture
def user(whole: Sesame, tmp_path: Path) -> Sesame:
    """The same user in a folder that a test may damage."""
    shutil.copytree(whole.folder, tmp_path / "user")
    return Sesame(tmp_path / "user")


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def one_line(text: str) -> str:
    return " ".join(text.split())


def hashes(store: Path) -> dict[str, str]:
    """Every visible file of the outputs, without the facts of the run."""
    return {
        str(path.relative_to(store)): sha256(path)
        for stage in ("shard", "tokenizer", "examples")
        for path in sorted((store / stage).rglob("*"))
        if path.is_file() and path.name != "run.json" and "/." not in str(path.relative_to(store))
    }


@pytest.mark.parametrize(
    ("pattern", "used_by"),
    [
        ("shard/*/train-*.tar", "examples"),
        ("shard/*/statistics.json", "examples"),
        ("tokenizer/*/tokenizer.json", "examples"),
        ("examples/*/train-*.tar", "examples"),
    ],
)
def test_flipped_bytes_stop_the_stage_that_reads_them(
    user: Sesame, pattern: str, used_by: str
) -> None:
    path = sorted(user.store.glob(pattern))[0]
    flip(path)
    plan = user("plan", *SMALL, COLUMNS="200")
    assert "damaged" in plan.stderr and f"{path.name} has other content" in plan.stderr
    done = user(used_by, *SMALL, "examples.duplicates=2")  # new examples of the same shards
    if not pattern.startswith("examples"):
        assert done.returncode == 1 and "sesame repair" in done.stderr
    again = user(used_by, *SMALL)
    assert again.returncode == 1
    assert f"{path.name} has other content, so it is not what its manifest says" in one_line(
        again.stderr
    )


def test_verify_names_damage_dependants_and_the_remedy(user: Sesame) -> None:
    assert "3 finished outputs are what" in user.succeed("verify").stdout
    tar = sorted(user.store.glob("shard/*/train-*.tar"))[0]
    times = tar.stat()
    flip(tar)
    # A disk that loses bits changes no time; only `verify` reads everything again.
    os.utime(tar, ns=(times.st_atime_ns, times.st_mtime_ns))
    found = user("verify", "bert_tiny")
    shard, tokenizer, examples = (
        f"{stage}/{next(path.name for path in (user.store / stage).iterdir())}"
        for stage in ("shard", "tokenizer", "examples")
    )
    said = one_line(found.stderr)
    assert found.returncode == 1
    assert f"damaged store/{shard} {tar.name} has other content" in said
    assert f"made from it: {tokenizer}, {examples} remedy: sesame repair {shard}" in said
    assert "1 of 3 finished outputs" in said
    for name in ("nobody", "ffffffff"):
        refused = user("verify", name)
        assert refused.returncode == 2 and f"{name}: no such run" in refused.stderr


@pytest.mark.parametrize("damage", ["flipped", "missing", "manifest"])
def test_repair_makes_the_same_bytes_and_deletes_nothing(user: Sesame, damage: str) -> None:
    before = hashes(user.store)
    tar = sorted(user.store.glob("shard/*/train-*.tar"))[0]
    folder = tar.parent
    if damage == "flipped":
        flip(tar)
    elif damage == "missing":
        tar.unlink()
    else:
        (folder / "manifest.json").write_text("{")
    kept = {path.name for path in folder.iterdir()}
    user.succeed("repair", "bert_tiny")
    assert hashes(user.store) == before
    aside = user.store / "shard" / f".{folder.name}.damaged"
    assert {path.name for path in aside.iterdir()} == kept
    assert "what their manifests say" in user.succeed("verify").stdout
    assert "nothing is damaged" in user.succeed("repair").stdout


def test_without_a_recorded_command_it_is_set_aside_and_said(user: Sesame) -> None:
    (user.store / "runs" / "bert_tiny.json").unlink()
    tar = sorted(user.store.glob("shard/*/train-*.tar"))[0]
    tar.unlink()
    done = user("repair", f"shard/{tar.parent.name}")
    assert done.returncode == 1
    assert "no run recorded the command that made it" in one_line(done.stderr)
    user.succeed("examples", *SMALL)
    user.succeed("verify")


def test_clean_removes_nothing_while_a_manifest_is_unreadable(user: Sesame) -> None:
    """What the output was made from is not known."""
    [manifest] = user.store.glob("examples/*/manifest.json")
    manifest.write_text("[]")
    assert "damaged" in user.succeed("list").stdout
    done = user("clean", "--yes")
    assert done.returncode == 1 and "manifest.json: is damaged" in one_line(done.stderr)


def test_a_pretraining_is_repaired_from_its_newest_whole_checkpoint(
    smoke: Sesame, tmp_path: Path
) -> None:
    """An export of an earlier step under the last step's fingerprint must be impossible. 15 s."""
    shutil.copytree(smoke.store, tmp_path / "store")
    user = Sesame(tmp_path)
    [run] = user.store.glob("pretrain/*")
    before = {path.name: sha256(path) for path in run.glob("checkpoints/00000012/*.safetensors")}
    metrics = (run / "metrics.jsonl").read_bytes()
    shutil.rmtree(run / "checkpoints" / "00000012")
    export = ("export", "experiment=smoke", "encoder=smoke", "export.license=mit")
    refused = user(*export)
    assert refused.returncode == 1
    assert "checkpoints/00000012" in refused.stderr and "is missing" in refused.stderr
    assert "goes on from step 6" in user.succeed("repair", "smoke").stderr
    assert {
        path.name: sha256(path) for path in run.glob("checkpoints/00000012/*.safetensors")
    } == before
    assert (run / "metrics.jsonl").read_bytes() == metrics
    user.succeed(*export)
    # A checkpoint that is no part of the output is not taken for its last one.
    shutil.copytree(run / "checkpoints" / "00000006", run / "checkpoints" / "00000099")
    made = Path(user.succeed(*export[:3], "export.license=cc0-1.0").stdout.strip())
    assert '"step": 12' in (user.folder / made / "manifest.json").read_text()
