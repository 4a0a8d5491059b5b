"""`publish --upload` goes online, and nothing else does; a failure is one sentence."""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from data_prep.errors import SesameError
from pipeline.export.hub import upload
from tests.pipeline.inference.small_models import write_models

TOKEN = "hf_sentinelofahubthatnobodymayread"


class FakeHub:
    """Remembers what it is asked; refuses some repositories."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def create_repo(self, repo_id: str, **how: Any) -> None:
        if "/" not in repo_id:
            raise ValueError("the name is not valid")
        self.calls.append((repo_id, how))

    def upload_folder(self, **how: Any) -> None:
        self.calls.append(("upload", how))


def test_an_upload_goes_to_a_private_repository(tmp_path: Path) -> None:
    hub = FakeHub()
    upload(tmp_path, "me/demo", hub)
    assert hub.calls == [
        ("me/demo", {"private": True, "exist_ok": True}),
        ("upload", {"repo_id": "me/demo", "folder_path": str(tmp_path)}),
    ]
    with pytest.raises(SesameError, match="repo=demo: the Hub refused the upload"):
        upload(tmp_path, "demo", hub)


class Server(ThreadingHTTPServer):
    """A Hub on this machine: takes commits, or answers everything with one status."""

    status = 200
    asked: list[str]
    published: list[str]


class Answers(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.append(self.path)
        here = f"http://{self.headers['Host']}/me/toy"
        answer: dict[str, Any] = {"url": here, "id": "1"}
        if "/preupload/" in self.path:
            names = [file["path"] for file in json.loads(content)["files"]]
            files = [{"path": n, "uploadMode": "regular", "shouldIgnore": False} for n in names]
            answer = {"files": files}
        elif "/commit/" in self.path:
            lines = [json.loads(line) for line in content.splitlines()]
            files = [line["value"]["path"] for line in lines if line["key"] == "file"]
            self.server.published += files
            answer = {"commitOid": "1", "commitUrl": f"{here}/commit/1"}
        self.answer(answer)

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        self.answer({"id": "me/toy", "sha": "1", "siblings": []})

    def answer(self, content: dict[str, Any]) -> None:
        body = json.dumps(content if self.server.status == 200 else {"error": "no"}).encode()
        self.send_response(self.server.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Answers) as server:
        server.asked, server.published = [], []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture(scope="module")
def mood(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("models")
    write_models(made)
    return made / "mood"


def publish(
    model: Path, folder: Path, port: int, **settings: str
) -> subprocess.CompletedProcess[str]:
    """Run the command as a user does, who has set nothing but a token and where the Hub is."""
    ours = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_TOKEN", "HF_ENDPOINT")
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    environment |= {"HF_TOKEN": TOKEN, "HF_ENDPOINT": f"http://127.0.0.1:{port}", "NO_PROXY": "*"}
    command = [sys.executable, "-m", "pipeline.commands.main", "publish", f"model={model}",
               "licence=mit", "out=out", "repo=me/toy", "--upload"]  # fmt: skip
    return subprocess.run(
        command, cwd=folder, env=environment | settings, capture_output=True, text=True
    )


def test_the_same_command_uploads_after_a_refusal(
    server: Server, mood: Path, tmp_path: Path
) -> None:
    server.status = 403
    done = publish(mood, tmp_path, server.server_port)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "repo=me/toy: the Hub refused the upload (HTTP 403); check the name" in done.stderr
    assert server.asked[0] == "/api/repos/create" and TOKEN not in done.stderr
    server.status = 200
    done = publish(mood, tmp_path, server.server_port)
    assert done.returncode == 0, done.stderr
    assert sorted(server.published) == sorted(path.name for path in (tmp_path / "out").iterdir())


def test_a_hub_that_is_not_reached_is_one_sentence(mood: Path, tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # nobody listens
        done = publish(mood, tmp_path, closed.getsockname()[1])
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "repo=me/toy: the Hub was not reached, or the connection broke" in done.stderr


@pytest.mark.parametrize("name", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_a_user_who_forbids_the_network_is_obeyed(
    name: str, server: Server, mood: Path, tmp_path: Path
) -> None:
    done = publish(mood, tmp_path, server.server_port, **{name: "1"})
    assert done.returncode == 2 and server.asked == []
    assert "is set to 1, which forbids it; unset both" in done.stderr
    assert not (tmp_path / "out").exists()


def test_arguments_are_checked_before_torch_is_imported(tmp_path: Path) -> None:
    code = (
        "import sys; from pipeline.commands.main import run; code = run(['publish', 'model=x']); "
        "sys.exit(code + 10 * ('torch' in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True)
    assert done.returncode == 2
