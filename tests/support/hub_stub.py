"""A hub on loopback: as much of its HTTP interface as pushing and pulling a model needs.

After the requests of ``huggingface_hub``; what the real hub does beyond that is not here (Xet storage, gates,
rate limits).
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from PIL import Image

__all__ = ["TELLING", "TOKEN", "HubStub", "write_images"]

TOKEN = "hf_a-token-that-may-write"
TELLING = "anna-smith"
"""Stands in every path from which the models are made."""
_COMMIT_HEADER = "X-Repo-Commit"


@attrs.define
class _Repo:
    private: bool
    commits: dict[str, dict[str, bytes]] = attrs.field(factory=dict)
    head: str = ""

    def add(self, files: dict[str, bytes]) -> str:
        content = repr((len(self.commits), sorted(files))).encode()
        self.head = hashlib.sha1(content).hexdigest()
        self.commits[self.head] = files
        return self.head


class HubStub:
    """A hub; what it was sent and asked for stands in its attributes.

    Attributes:
        repos: The repositories by ``OWNER/NAME``.
        requests: Method and path of each request.
        bodies: The body of each request that had one.
        refuse: Path pattern -> status that is answered instead; 0 closes the connection.
        owners: Who the token may write for.
    """

    def __init__(self) -> None:
        self.repos: dict[str, _Repo] = {}
        self.requests: list[tuple[str, str]] = []
        self.bodies: list[bytes] = []
        self.refuse: dict[str, int] = {}
        self.owners = {"anna"}
        self.blobs: dict[str, bytes] = {}
        stub = self

        class Handler(_Handler):
            hub = stub

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )

    def __enter__(self) -> HubStub:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def made(self, repo: str, files: dict[str, bytes], *, private: bool = False) -> str:
        """Put a repository there as somebody else has filled it; return its commit."""
        self.repos[repo] = _Repo(private=private)
        return self.repos[repo].add(files)

    def asked_for(self, kind: str) -> list[str]:
        """Return the paths of all requests of one method."""
        return [path for method, path in self.requests if method == kind]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: HubStub

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def _serve(self) -> None:
        path = self.path.partition("?")[0]
        self.hub.requests.append((self.command, path))
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if body:
            self.hub.bodies.append(body)
        for pattern, status in self.hub.refuse.items():
            if re.search(pattern, f"{self.command} {path}"):
                if status:
                    self._answer(status, {"error": "as the test wants it"})
                self.close_connection = True
                return
        for method, pattern, answer in _ROUTES:
            match = re.fullmatch(pattern, path)
            if method == self.command and match is not None:
                answer(self, body, *match.groups())
                return
        self._answer(404, {"error": f"no such place: {path}"})

    do_GET = do_HEAD = do_POST = do_PUT = _serve

    def _answer(self, status: int, content: Any = None, **headers: str) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    @property
    def _may_write(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {TOKEN}"

    def _repo(self, name: str) -> _Repo | None:
        """Return a repository, after the answer that there is none which the token may see."""
        repo = self.hub.repos.get(name)
        if repo is None or (repo.private and not self._may_write):
            self._answer(401, {"error": "Repository not found"}, X_Error_Code="RepoNotFound")
            return None
        return repo

    def create(self, body: bytes) -> None:
        asked = json.loads(body)
        if not self._may_write:
            self._answer(401, {"error": "Invalid username or password."})
        elif asked["organization"] not in self.hub.owners:
            self._answer(403, {"error": "You don't have the rights to create a model under the namespace"})
        else:
            name = f"{asked['organization']}/{asked['name']}"
            private = asked.get("visibility") == "private" or asked.get("private") is True
            self.hub.made(name, {".gitattributes": b"*.safetensors filter=lfs\n"}, private=private)
            self._answer(200, {"url": f"{self.hub.address}/{name}"})

    def info(self, _: bytes, name: str, revision: str | None = None) -> None:
        repo = self._repo(name)
        if repo is None:
            return
        commit = repo.head if revision in (None, "main") else revision
        if commit not in repo.commits:
            self._answer(404, {"error": "Invalid rev id"}, X_Error_Code="RevisionNotFound")
            return
        files = [{"rfilename": path, "size": len(data)} for path, data in repo.commits[commit].items()]
        self._answer(200, {"id": name, "sha": commit, "private": repo.private, "siblings": files})

    def validate(self, _: bytes) -> None:
        self._answer(200, {"errors": [], "warnings": []})

    def preupload(self, body: bytes, name: str) -> None:
        files = []
        for file in json.loads(body)["files"]:
            mode = "lfs" if file["path"].endswith(".safetensors") else "regular"
            files.append({"path": file["path"], "uploadMode": mode, "shouldIgnore": False, "oid": None})
        self._answer(200, {"files": files})

    def batch(self, body: bytes, name: str) -> None:
        objects = []
        for wanted in json.loads(body)["objects"]:
            upload = {"href": f"{self.hub.address}/lfs/{wanted['oid']}"}
            objects.append({**wanted, "actions": {"upload": upload}})
        content = {"transfer": "basic", "objects": objects}
        self._answer(200, content, Content_Type="application/vnd.git-lfs+json")

    def put(self, body: bytes, oid: str) -> None:
        self.hub.blobs[oid] = body
        self._answer(200, {})

    def commit(self, body: bytes, name: str) -> None:
        repo = self._repo(name)
        if repo is None:
            return
        lines = [json.loads(line) for line in body.splitlines()]
        header = lines[0]["value"]
        if header.get("parentCommit") not in (None, repo.head):
            self._answer(412, {"error": "A commit has happened since"})
            return
        files = dict(repo.commits[repo.head])
        for line in lines[1:]:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.hub.blobs[value["oid"]]
            elif line["key"] == "deletedFile":
                del files[value["path"]]
        commit = repo.add(files)
        url = f"{self.hub.address}/{name}/commit/{commit}"
        self._answer(200, {"commitUrl": url, "commitOid": commit, "pullRequestUrl": None})

    def resolve(self, _: bytes, name: str, revision: str, path: str) -> None:
        repo = self._repo(name)
        if repo is None:
            return
        commit = repo.head if revision == "main" else revision
        content = repo.commits.get(commit, {}).get(path)
        if content is None:
            self._answer(404, {"error": "Entry not found"}, X_Error_Code="EntryNotFound")
            return
        tag = hashlib.sha256(content).hexdigest()
        self._answer(200, content, **{_COMMIT_HEADER: commit, "ETag": f'"{tag}"'})


def write_images(folder: Path, shade: int, count: int = 8) -> None:
    """Write images of one shade with a little noise, under names that tell about people."""
    draw = np.random.default_rng(shade)
    folder.mkdir(parents=True)
    for number in range(count):
        pixels = draw.integers(0, 40, (16, 16, 3)) + shade
        Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{TELLING}-at-home-{number}.png")


_NAME = r"([\w.-]+/[\w.-]+)"
_ROUTES = (
    ("POST", "/api/repos/create", _Handler.create),
    ("GET", rf"/api/models/{_NAME}", _Handler.info),
    ("GET", rf"/api/models/{_NAME}/revision/(.+)", _Handler.info),
    ("POST", "/api/validate-yaml", _Handler.validate),
    ("POST", rf"/api/models/{_NAME}/preupload/main", _Handler.preupload),
    ("POST", rf"/{_NAME}\.git/info/lfs/objects/batch", _Handler.batch),
    ("PUT", "/lfs/([0-9a-f]+)", _Handler.put),
    ("POST", rf"/api/models/{_NAME}/commit/main", _Handler.commit),
    ("HEAD", rf"/{_NAME}/resolve/([^/]+)/(.+)", _Handler.resolve),
    ("GET", rf"/{_NAME}/resolve/([^/]+)/(.+)", _Handler.resolve),
)
