"""As much of a wandb server as a run needs to be uploaded: it takes everything and remembers it."""

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class WandbServer(ThreadingHTTPServer):
    """Remembers GraphQL calls by their name, and the lines of the files that runs stream."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.files: dict[str, dict[int, str]] = {}
        self.by_run: dict[str, dict[str, dict[int, str]]] = {}  # the same, by the run's address

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def named(self, call: str) -> list[dict[str, Any]]:
        """The variables of all calls of a name."""
        return [variables for name, variables in self.calls if name == call]

    def history(self) -> list[dict[str, Any]]:
        """The run's rows, in order."""
        lines = self.files.get("wandb-history.jsonl", {})
        return [json.loads(lines[number]) for number in sorted(lines)]

    def answer(self, call: str, variables: dict[str, Any]) -> dict[str, Any]:
        self.calls.append((call, variables))
        if call == "Viewer":
            return {"viewer": {"id": "u", "entity": "us", "username": "us", "flags": "{}"}}
        if call == "UpsertBucket":
            project = {"id": "p", "name": variables["project"], "entity": {"id": "e", "name": "us"}}
            names = {"name": variables["name"], "displayName": variables["displayName"]}
            bucket = {"id": "b", "config": "{}", "project": project} | names
            return {"upsertBucket": {"bucket": bucket, "inserted": True}}
        if call == "CreateArtifact":
            made = {"id": variables["input"]["artifactCollectionName"], "state": "COMMITTED"}
            return {"createArtifact": {"artifact": made | {"artifactSequence": {"id": "s"}}}}
        if call == "UseArtifact":
            return {"useArtifact": {"artifact": {"id": variables["input"]["artifactID"]}}}
        if call == "CreateRunFiles":
            places = [{"name": n, "uploadUrl": f"{self.address}/{n}"} for n in variables["files"]]
            return {"createRunFiles": {"runID": "b", "uploadHeaders": [], "files": places}}
        return {"project": None}  # such as an artifact's type, which is not known yet

    def take(self, run: str, files: dict[str, Any]) -> None:
        for name, part in files.items():
            new = dict(enumerate(part["content"], start=part["offset"]))
            for known in (self.files, self.by_run.setdefault(run, {})):
                known.setdefault(name, {}).update(new)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: WandbServer

    def do_GET(self) -> None:
        self._reply({})

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._reply({})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        content = json.loads(body or b"{}")  # telemetry comes empty
        if self.path == "/graphql":
            call = content["operationName"]
            self._reply({"data": self.server.answer(call, content.get("variables") or {})})
        else:
            self.server.take(self.path, content.get("files") or {})
            self._reply({})

    def _reply(self, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *values: Any) -> None:
        """Quiet."""


@contextmanager
def wandb_server() -> Iterator[WandbServer]:
    """A server on a free port of this machine."""
    server = WandbServer()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
