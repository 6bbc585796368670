"""A hub of this process: as much of the Hugging Face hub's HTTP interface as sharing runs takes."""

import hashlib
import json
import threading
from base64 import b64decode
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

TOKEN = "hf_of_the_test"
Files = dict[str, bytes]


class Hub(ThreadingHTTPServer):
    """Repositories by their names: commits (id, message, files), newest last. `sent` has what was
    asked for."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.repos: dict[str, list[tuple[str, str, Files]]] = {}
        self.private: set[str] = set()
        self.sent: list[tuple[str, str]] = []
        self.fails = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def commit(self, repo: str, message: str, files: Files, without: Iterable[str] = ()) -> str:
        before = self.repos.setdefault(repo, [])
        oid = hashlib.sha1(f"{repo}{len(before)}".encode()).hexdigest()
        kept = dict(before[-1][2]) if before else {}
        for name in without:
            del kept[name]
        before.append((oid, message, {**kept, **files}))
        return oid

    def at(self, repo: str, revision: str) -> tuple[str, Files] | None:
        """The commit of a revision, and its files."""
        commits = self.repos.get(repo, [])
        for oid, _, files in commits[::-1]:
            if revision in ("main", oid):
                return oid, files
        return None


class Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def answer(self, data: Any, status: int = 200, **headers: str) -> None:
        body = data if isinstance(data, bytes) else json.dumps(data).encode()
        self.send_response(status)
        for name, text in headers.items():
            self.send_header(name.replace("_", "-"), text)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def fail(self, status: int, code: str, message: str) -> None:
        self.answer({"error": message}, status, X_Error_Code=code, X_Error_Message=message)

    def may(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {TOKEN}"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = unquote(urlsplit(self.path).path)
        self.server.sent.append(("POST", path))
        if path == "/api/validate-yaml":
            return self.answer({"errors": [], "warnings": []})
        if not self.may():
            return self.fail(401, "", "Invalid username or password.")
        if path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked.get('organization') or 'me'}/{asked['name']}"
            if name.startswith("other/"):
                return self.fail(403, "", "You don't have the rights to create a model there")
            if asked.get("visibility") == "private" or asked.get("private"):
                self.server.private.add(name)
            if name in self.server.repos:
                return self.answer({"url": f"{self.server.url}/{name}"}, 409)
            self.server.commit(name, "initial commit", {".gitattributes": b""})
            return self.answer({"url": f"{self.server.url}/{name}"})
        repo, _, action = path.removeprefix("/api/models/").partition("/preupload/")
        if action:
            how = {"uploadMode": "regular", "shouldIgnore": False}
            return self.answer(
                {"files": [{"path": f["path"], **how} for f in json.loads(body)["files"]]}
            )
        repo, _, action = path.removeprefix("/api/models/").partition("/commit/")
        told = [(line["key"], line["value"]) for line in map(json.loads, body.splitlines())]
        files = {x["path"]: b64decode(x["content"]) for key, x in told if key == "file"}
        gone = [x["path"] for key, x in told if key == "deletedFile"]
        oid = self.server.commit(repo, told[0][1]["summary"], files, gone)
        url = f"{self.server.url}/{repo}/commit/{oid}"
        return self.answer({"commitUrl": url, "commitOid": oid, "hookOutput": ""})

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.server.sent.append((self.command, path))
        if self.server.fails:
            return self.fail(500, "", "something went wrong here")
        if path.startswith("/api/models/"):
            repo, _, revision = path.removeprefix("/api/models/").partition("/revision/")
            name = None
        else:
            repo, _, rest = path[1:].partition("/resolve/")
            revision, _, name = rest.partition("/")
        if repo not in self.server.repos or (repo in self.server.private and not self.may()):
            return self.fail(401, "RepoNotFound", "Repository not found")
        if (found := self.server.at(repo, revision or "main")) is None:
            return self.fail(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        oid, files = found
        if name is None:
            siblings = [{"rfilename": n, "size": len(x), "blobId": "0"} for n, x in files.items()]
            return self.answer({"id": repo, "sha": oid, "siblings": siblings, "private": False})
        if name not in files:
            return self.fail(404, "EntryNotFound", "Entry not found")
        etag = f'"{hashlib.sha1(files[name]).hexdigest()}"'
        return self.answer(files[name], X_Repo_Commit=oid, ETag=etag)

    do_HEAD = do_GET


@contextmanager
def running() -> Iterator[Hub]:
    """A hub, for as long as it is needed."""
    hub = Hub()
    thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        thread.join()
        hub.server_close()
