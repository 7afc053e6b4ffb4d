"""A host on this machine that answers as those of data sets do, and says how it was asked."""

from __future__ import annotations

import http.server
import threading
from pathlib import Path

import attrs
import pytest


@attrs.define
class Host:
    """Files by path; ``cut`` ends the next answers after so many bytes; ``asked`` lists path and range."""

    address: str = ""
    files: dict[str, bytes] = attrs.field(factory=dict)
    headers: dict[str, str] = attrs.field(factory=dict)
    cut: list[int] = attrs.field(factory=list)
    resumes: bool = True
    asked: list[tuple[str, str, str | None]] = attrs.field(factory=list)

    def answer(self, handler: http.server.BaseHTTPRequestHandler) -> None:
        """Answer a request for a file, from where it asks."""
        path, wanted = handler.path.split("?")[0], handler.headers.get("Range")
        self.asked.append((handler.command, path, wanted))
        content = self.files.get(path)
        if content is None:
            handler.send_error(404)
            return
        start = int(wanted.removeprefix("bytes=").partition("-")[0]) if wanted and self.resumes else 0
        if start >= len(content) > 0:
            handler.send_error(416)
            return
        handler.send_response(206 if wanted and self.resumes else 200)
        handler.send_header("Content-Length", str(len(content) - start))
        if wanted and self.resumes:
            handler.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        for name, value in self.headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        if handler.command == "GET":
            body = content[start:]
            handler.wfile.write(body[: self.cut.pop(0)] if self.cut else body)
        handler.close_connection = True


@pytest.fixture
def host():
    """A running host without files."""
    made = Host()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            made.answer(self)

        do_HEAD = do_GET

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        made.address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield made
        server.shutdown()
        thread.join()


@pytest.fixture
def quiet():
    """A report that keeps what it is told."""
    told = []

    def report(name, done, total):
        told.append((name, done, total))

    report.told = told
    return report


def tree(root: Path) -> dict[str, bytes]:
    """Return relative path -> content of all files below a folder."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()
    }
