"""Remote files, read from a real S3 server on this machine (moto) and a real HTTP server."""

import gzip
import json
import os
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from data_prep.errors import SesameError, UsageError
from data_prep.reading.remote import RemotePath, is_remote
from data_prep.reading.sources import survey
from pipeline.commands.main import run
from pipeline.store.content import Checksums
from tests.data_prep.small_shards import digests, shard

SECRET = "wJalrCANARYKEY"


@pytest.fixture(scope="module")
def bucket() -> Iterator[Any]:
    """A bucket on an S3 server; its credentials are in the environment."""
    import boto3
    import fsspec
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    settings = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "canary-user",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    made = boto3.resource("s3").create_bucket(Bucket="corpora")
    yield made
    server.stop()
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The same files as in the bucket, on the disk: plain, compressed, and columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = [f"Document number {n} says something of its own." for n in range(300)]
    root = tmp_path / "texts"
    (root / "deep").mkdir(parents=True)
    lines = [json.dumps({"text": text}) + "\n" for text in texts]
    (root / "a.jsonl").write_text("".join(lines[:100]))
    (root / "deep" / "b.jsonl.gz").write_bytes(gzip.compress("".join(lines[100:200]).encode()))
    pq.write_table(pa.table({"text": texts[200:250]}), root / "deep" / "c.parquet")
    with pa.ipc.new_file(str(root / "d.arrow"), pa.schema({"text": pa.string()})) as writer:
        writer.write_table(pa.table({"text": texts[250:]}))
    (root / "notes.pdf").write_bytes(b"x")
    return root


def upload(bucket: Any, folder: Path, prefix: str) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            key = f"{prefix}/{path.relative_to(folder).as_posix()}"
            bucket.put_object(Key=key, Body=path.read_bytes())


def test_a_remote_folder_gives_the_bytes_of_a_local_one(
    bucket: Any, folder: Path, tmp_path: Path
) -> None:
    upload(bucket, folder, "same")
    counts = shard(tmp_path / "remote", "s3://corpora/same", piece_bytes=2_000)
    assert counts == shard(tmp_path / "local", folder, piece_bytes=2_000)
    assert counts["documents"]["kept"] == 300
    assert counts["unread_files"] == {"unknown_ending": 1}
    assert digests(tmp_path / "remote") == digests(tmp_path / "local")


def test_globs_files_and_checksums_are_as_on_a_disk(
    bucket: Any, folder: Path, tmp_path: Path
) -> None:
    upload(bucket, folder, "named")
    one = survey("s3://corpora/named/deep/b.jsonl.gz").files
    assert [file.name for file in one] == ["b.jsonl.gz"]
    some = survey("s3://corpora/named/*/*.parquet").files
    assert [file.name for file in some] == ["deep/c.parquet"]
    known = Checksums(tmp_path / "store")
    [local] = survey(str(folder / "deep" / "c.parquet")).files
    assert known.of(some[0].path) == known.of(local.path)


def test_a_file_that_changes_or_vanishes_is_noticed(bucket: Any) -> None:
    bucket.put_object(Key="moving/x.txt", Body=b"Some text.\n")
    [file] = survey("s3://corpora/moving").files
    file.refuse_change()
    bucket.put_object(Key="moving/x.txt", Body=b"Other text\n")
    with pytest.raises(SesameError, match=r"x\.txt changed"):
        file.refuse_change()
    bucket.Object("moving/x.txt").delete()
    with pytest.raises(SesameError, match=r"x\.txt is gone"):
        file.refuse_change()


def test_a_failure_of_the_network_never_looks_like_the_end_of_a_file(
    bucket: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.put_object(Key="cut/x.txt.gz", Body=gzip.compress(os.urandom(1 << 16)))
    [file] = survey("s3://corpora/cut").files
    with file.path.open("rb") as stream:
        inner = stream.raw._file  # type: ignore[attr-defined]
        monkeypatch.setattr(inner, "read", lambda size: (_ for _ in ()).throw(EOFError("cut")))
        with pytest.raises(SesameError, match=r"s3://corpora/cut/x\.txt\.gz: cannot be read"):
            stream.read(10)


def test_no_credential_is_stored(
    bucket: Any, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload(bucket, folder, "private")
    monkeypatch.chdir(tmp_path)
    assert run(["shard", "experiment=bert_tiny", "corpus.paths=s3://corpora/private"]) == 0
    stored = [path for path in (tmp_path / "store").rglob("*") if path.is_file()]
    assert len(stored) > 4
    for path in stored:
        content = path.read_bytes()
        assert SECRET.encode() not in content and b"canary-user" not in content, path


@pytest.mark.parametrize(
    "address",
    ["s3://user:word@corpora/x", "https://host.invalid/x.txt?token=1", "zip://x.txt::s3://b/y.zip"],
)
def test_an_address_with_a_secret_is_refused_and_not_repeated(address: str) -> None:
    with pytest.raises(UsageError, match="credentials in the environment") as refused:
        survey(address)
    assert "word" not in str(refused.value).replace("password", "") and "token" not in str(refused)


def test_wrong_addresses_are_named(bucket: Any) -> None:
    with pytest.raises(UsageError, match=r"corpus\.paths=s3://corpora/nowhere: there is no such"):
        survey("s3://corpora/nowhere")
    with pytest.raises(UsageError, match="known addresses begin with s3://"):
        survey("gopher://corpora/x.txt")
    with pytest.raises(UsageError, match="without file://"):
        survey("file:///tmp/x.txt")
    assert not is_remote("C:/texts") and not is_remote("texts/a:b")


def test_files_are_read_over_http(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"text": "One document over the wire."}\n')
    quiet = type("Quiet", (SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    handler = partial(quiet, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            address = f"http://127.0.0.1:{server.server_address[1]}/x.jsonl"
            [file] = survey(address).files
            assert isinstance(file.path, RemotePath)
            counts = shard(tmp_path / "out", address)
        finally:
            server.shutdown()
            thread.join()
    assert counts["documents"]["kept"] == 1
