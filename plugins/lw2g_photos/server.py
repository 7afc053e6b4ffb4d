"""The page of ``lw2g teach`` over HTTP, for the browser of whoever started it and for nobody else.

It listens on 127.0.0.1. Every request needs the token of the address; requests under another host name (DNS
that is bound anew) or from a page of another origin are refused. An upload of several files is one POST: a
line of JSON, ``[[class, name, bytes], ...]``, then the bytes of the files.
"""

from __future__ import annotations

import hmac
import json
import math
import re
import secrets
import sys
import traceback
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from importlib.resources import files
from io import BufferedIOBase
from socketserver import ThreadingTCPServer
from typing import Any
from urllib.parse import parse_qs

from lw2g.errors import ConfigError, DataError, Lw2gError, shown
from lw2g.ground.interruption import answered
from lw2g_photos.classroom import MOST_BYTES, MOST_FILES, Busy, Classroom
from lw2g_photos.uploads import Upload

__all__ = ["Server"]

_HOST = "127.0.0.1"
_LONGEST_HEAD = 2**20
"""The most bytes of the line that announces files."""
_DRAINED = 2**16
"""The most bytes of a refused body that are read."""
_WRONG_TOKEN = "Open the address that lw2g teach printed: this one has no valid token."
_POLICY = (
    "default-src 'none'; script-src 'nonce-{0}'; style-src 'nonce-{0}'; connect-src 'self'; img-src blob:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class Server(ThreadingTCPServer):
    """Serves the page of one classroom.

    Args:
        classroom: The model that is taught.
        port: 0 for any free one.

    Raises:
        ConfigError: The port cannot be had.

    Attributes:
        address: Of the page, with its token.
    """

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, classroom: Classroom, port: int = 0) -> None:
        try:
            super().__init__((_HOST, port), _Handler)
        except OSError as error:
            raise ConfigError(
                f"port {port}: {(error.strerror or str(error)).lower()}",
                "name another; 0 is any free one",
            ) from error
        self.classroom = classroom
        self.token = secrets.token_urlsafe(24)
        self.host = f"{_HOST}:{self.server_address[1]}"
        self.address = f"http://{self.host}/?token={self.token}"
        self.page = files("lw2g_photos").joinpath("page.html").read_text(encoding="utf-8")

    def until_interrupted(self) -> None:
        """Answer requests until Ctrl-C."""
        try:
            self.serve_forever()
        except KeyboardInterrupt:
            answered()  # what fails from now on is no consequence of it


class _Body:
    """The body of a request, which ends where its length says."""

    def __init__(self, stream: BufferedIOBase, length: int) -> None:
        self._stream = stream
        self.left = length

    def read(self, size: int) -> bytes:
        """Return at most this many bytes of the rest."""
        part = self._stream.read(min(size, self.left))
        self.left -= len(part)
        return part

    def line(self) -> bytes:
        """Return the first line, or as much of it as may be one."""
        line = self._stream.readline(min(self.left, _LONGEST_HEAD))
        self.left -= len(line)
        return line


class _Refused(Exception):
    """A request that is answered with a status."""

    def __init__(self, status: HTTPStatus, what: str) -> None:
        super().__init__(what)
        self.status = status


class _Handler(BaseHTTPRequestHandler):
    server: Server
    timeout = 30
    server_version = "lw2g"
    sys_version = ""  # nobody need know which Python it is

    def do_GET(self) -> None:
        """Answer with the page, or the state of the model."""
        self._answer({"/": self._page, "/state": self._state})

    def do_POST(self) -> None:
        """Do what the page asks for."""
        self._answer(
            {
                "/learn": self._learn,
                "/predict": self._predict,
                "/undo": self._undo,
                "/forget": self._forget,
            }
        )

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing: addresses hold the token."""

    def _answer(self, known: dict[str, Callable[[], Any]]) -> None:
        """Answer a request by the function of its path; an error becomes a status with its text."""
        status = HTTPStatus.OK
        answer: Any
        try:
            answer = known.get(self._checked(), self._unknown)()
        except _Refused as error:
            status = error.status
            answer = {"error": str(error)}
            if self.command == "GET" and self.path.partition("?")[0] == "/":  # somebody reads it
                answer = (
                    f'<!doctype html><html lang="en"><title>lw2g teach</title><body>{error}</body></html>'
                )
        except Lw2gError as error:
            status = HTTPStatus.BAD_REQUEST
            if isinstance(error, Busy):
                status = HTTPStatus.CONFLICT
            answer = {"error": str(error)}
        except OSError as error:
            status = HTTPStatus.INTERNAL_SERVER_ERROR
            answer = {"error": error.strerror or type(error).__name__}
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            status = HTTPStatus.INTERNAL_SERVER_ERROR
            answer = {"error": f"a bug: {type(error).__name__}"}
        try:
            self._send(status, answer)
        except OSError:  # the browser has gone
            self.close_connection = True

    def _checked(self) -> str:
        """Return the path of a request that may be answered."""
        length = self.headers.get("Content-Length", "")
        self.length = int(length) if re.fullmatch("[0-9]{1,15}", length) else -1
        self.body = _Body(self.rfile, max(self.length, 0))
        path, _, query = self.path.partition("?")
        self.query = parse_qs(query)
        given = self.query.get("token", [""])[0].encode(errors="replace")
        origin = f"http://{self.server.host}"
        origins = self.headers.get_all("Origin") or []
        if not origins and self.command == "GET":  # browsers name the origin of a page's POST always
            origins = [origin]
        if self.headers.get_all("Host") != [self.server.host] or origins != [origin]:
            raise _Refused(HTTPStatus.FORBIDDEN, "a request from elsewhere")
        if not hmac.compare_digest(given, self.server.token.encode()):
            raise _Refused(HTTPStatus.FORBIDDEN, _WRONG_TOKEN)
        if self.command == "POST" and self.length < 0:
            raise _Refused(HTTPStatus.LENGTH_REQUIRED, "no length is given")
        if self.length > MOST_BYTES + _LONGEST_HEAD:
            raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"{MOST_BYTES >> 20} MiB are the most")
        return path

    def _unknown(self) -> Any:
        raise _Refused(HTTPStatus.NOT_FOUND, "there is no such page")

    def _page(self) -> str:
        return self.server.page

    def _state(self) -> dict[str, Any]:
        return self.server.classroom.state()

    def _learn(self) -> dict[str, Any]:
        head = self.body.line()
        self.server.classroom.learn(_uploads(head, self.length), self.body)
        return self._state()

    def _predict(self) -> dict[str, Any]:
        name = self.query.get("name", [""])[0]
        reject = _rate(self.query.get("reject", [""])[0])
        upload = Upload(folders=(), name=name, size=self.length)
        return self.server.classroom.predict(upload, self.body, reject)

    def _undo(self) -> dict[str, Any]:
        self.server.classroom.undo(self.query.get("at", [""])[0])
        return self._state()

    def _forget(self) -> dict[str, Any]:
        self.server.classroom.forget(self.query.get("name", [""])[0], self.query.get("at", [""])[0])
        return self._state()

    def _send(self, status: HTTPStatus, answer: Any) -> None:
        """Send a page (text) or JSON (anything else), with headers that keep other sites out."""
        nonce = secrets.token_urlsafe(16)  # the page's own script and style have it, and nothing else runs
        if isinstance(answer, str):
            kind = "text/html"
            text = answer.replace("NONCE", nonce)
        else:
            kind = "application/json"
            text = json.dumps(answer)
        content = text.encode()
        self.send_response(status)
        for name, value in {
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(len(content)),
            "Content-Security-Policy": _POLICY.format(nonce),
            "Cache-Control": "no-store",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)
        self.body.read(_DRAINED)  # a connection that is closed on unread bytes may lose the answer


def _rate(text: str) -> float:
    """Return the share of known images that may be called unknown.

    Raises:
        DataError: It is none.
    """
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    if not 0 < rate < 1:  # NaN is not, either
        raise DataError(f"reject: expected a number between 0 and 1 but got {shown(text)}", "0.05 is usual")
    return rate


def _uploads(head: bytes, length: int) -> list[Upload]:
    """Return the files that an upload announces.

    Raises:
        DataError: The announcement is none, or does not fit the length of the whole.
    """
    uploads = []
    try:
        for folders, name, size in json.loads(head):
            if not isinstance(folders, list) or not folders:
                raise ValueError(folders)
            # exactly int: 1e400 is JSON and no number, and a size below zero would make up for another one
            if type(size) is not int or size < 0:
                raise ValueError(size)
            uploads.append(Upload(folders=[str(folder) for folder in folders], name=str(name), size=size))
    except (ValueError, TypeError, RecursionError) as error:
        raise DataError("the upload has no list of files", "send it from the page") from error
    if len(head) + sum(upload.size for upload in uploads) != length:
        raise DataError("the upload has another length than it says", "send it again")
    if not 0 < len(uploads) <= MOST_FILES:
        raise DataError(f"{len(uploads)} files", f"send between 1 and {MOST_FILES} at once")
    return uploads
