"""The page that teaches: who is refused, what cannot be sent, and two classes taught in a real browser."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from io import BytesIO
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image

import lw2g
from browsers import chromium
from lw2g.cli.main import main
from lw2g.disk.lock import locked
from lw2g.errors import DataError
from lw2g.model.exported import read_export
from lw2g.model.places import reserved
from lw2g.registry.catalogue import load_catalogue
from lw2g.runtime.console import percent
from lw2g_photos import classroom as classroom_module
from lw2g_photos.class_folders import read_class_folders
from lw2g_photos.classroom import MOST_BYTES, MOST_FILES, Classroom, _made
from lw2g_photos.server import Server
from lw2g_photos.uploads import Upload

NASTY = "<img src=x onerror=document.title='owned'>"


def png(shade: int, number: int) -> bytes:
    """Return a picture of one shade and some noise."""
    generator = torch.Generator().manual_seed(100 * shade + number)
    noise = torch.randint(0, 30, (16, 16, 3), generator=generator) + 70 * shade
    written = BytesIO()
    Image.fromarray(noise.to(torch.uint8).numpy()).save(written, "PNG")
    return written.getvalue()


def folder(root: Path, name: str, shade: int, count: int = 6) -> Path:
    """Write a class of pictures and return its folder."""
    (root / name).mkdir(parents=True)
    for number in range(count):
        (root / name / f"{number}.png").write_bytes(png(shade, number))
    return root / name


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of two classes."""
    root = tmp_path_factory.mktemp("first")
    for shade, name in enumerate(("black", "grey")):
        folder(root / "images", name, shade)
    lw2g.start(root / "images", root / "model", device="cpu")
    return root / "model"


@contextmanager
def served(classroom: Classroom) -> Iterator[Server]:
    """Serve the page of a classroom within the block."""
    with Server(classroom) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()
        classroom.close()


@pytest.fixture
def server(first: Path, tmp_path: Path) -> Iterator[Server]:
    """The page of a copy of it."""
    shutil.copytree(first, tmp_path / "room" / "model")
    with served(Classroom(tmp_path / "room" / "model", load_catalogue(), device="cpu")) as server:
        yield server


def ask(server: Server, path: str, body: bytes | None = None, **changes: Any) -> tuple[int, Any]:
    """Send a request as the page would, but for some headers and parts of the address."""
    query = {"token": server.token} | changes.pop("query", {})
    headers = {"Host": server.host, "Origin": f"http://{server.host}"} | changes
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=300)
    connection.putrequest("GET" if body is None else "POST", f"{path}?{urlencode(query)}", skip_host=True)
    if body is not None:
        headers = {"Content-Length": len(body)} | headers
    for name, value in headers.items():
        if value is not None:
            connection.putheader(name, str(value))
    connection.endheaders(body)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, json.loads(content) if path != "/" else content.decode()


def upload(*entries: tuple[str, str, bytes]) -> bytes:
    """Return the body of an upload of class, name and content."""
    head = [[own.split("/"), name, len(content)] for own, name, content in entries]
    return json.dumps(head).encode() + b"\n" + b"".join(content for _, _, content in entries)


def pictures(name: str, shade: int = 2, count: int = 6) -> bytes:
    return upload(*((name, f"{number}.png", png(shade, number)) for number in range(count)))


def names(state: dict[str, Any]) -> list[str]:
    return [entry["name"] for entry in state["classes"]]


def test_a_class_is_taught_tried_and_undone(server: Server, first: Path) -> None:
    """The steps of a session are in one folder; undone, the sums have the bits of before."""
    assert ask(server, "/state")[1]["undo"] is False
    status, state = ask(server, "/learn", pictures(f"{NASTY} "))
    assert status == 200
    assert names(state) == ["black", "grey", NASTY]
    assert [entry["images"] for entry in state["classes"]] == [6, 6, 6]
    assert [sum(row) for row in state["confusion"]] == [6, 6, 6]
    assert Path(state["folder"]).parts[-2:] == ("model-taught", "1")
    status, answer = ask(server, "/predict", png(2, 9), query={"name": "x.png", "reject": "0.1"})
    assert (status, answer["best"]) == (200, NASTY)
    answer = ask(server, "/predict", png(2, 9), query={"name": "x.png", "reject": "0.01"})[1]
    assert answer["class"] == NASTY
    few = "Too few images to call any unknown at {}: 18 of the {} needed; {}teach more"
    assert state["rates"] == {
        "0.01": few.format("1 %", 99, "choose 10 %, or "),
        "0.05": few.format("5 %", 19, "choose 10 %, or "),
        "0.1": "",
    }
    status, state = ask(server, "/undo", b"")
    assert (status, names(state), Path(state["folder"]).name) == (200, ["black", "grey"], "2")
    before, after = (read_export(path).tensors for path in (first, Path(state["folder"])))
    assert all(torch.equal(before[name], after[name]) for name in before)
    session = Path(state["folder"]).parent
    assert sorted(path.name for path in session.iterdir()) == ["1", "2"]
    assert sorted(path.name for path in session.parent.iterdir()) == ["model", "model-taught"]


def test_a_session_has_a_folder_of_its_own(first: Path, tmp_path: Path) -> None:
    """Another session beside it, or one that goes on with its model, gets the next free name."""
    shutil.copytree(first, tmp_path / "model")
    ends = []
    for start in ("model", "model", "model-taught-2/1", "model-taught-3/1"):
        if start == "model-taught-3/1":  # numbers of sessions that are gone are not given again
            shutil.rmtree(tmp_path / "model-taught")
            shutil.rmtree(tmp_path / "model-taught-2")
        classroom = Classroom(tmp_path / start, load_catalogue(), device="cpu")
        image = png(2, len(ends))
        one = Upload(folders=["cat"], name="x.png", size=len(image))
        broken = Upload(folders=["cat"], name="y.png", size=2)
        classroom.learn([one, broken], BytesIO(image + b"no"))
        # what is no image is left out, and named as it was sent
        said = classroom.state()["check"]["warnings"]
        assert said[0].startswith("left out 1 of 2 images, first 'cat/y.png': it is no image")
        ends.append(Path(classroom.state()["folder"]).relative_to(tmp_path).as_posix())
        classroom.close()
    assert ends == ["model-taught/1", "model-taught-2/1", "model-taught-3/1", "model-taught-4/1"]


def test_the_next_day_the_last_session_is_named(
    first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it ended, though its last step was undone; there nothing is said; Ctrl-C tells how to go on."""
    shutil.copytree(first, tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Server, "serve_forever", lambda self: None)

    def said(model: str) -> str:
        return CliRunner().invoke(main, ["teach", model, "--device", "cpu"]).output

    assert "the last session" not in said("model")
    lw2g.learn("model", folder(tmp_path / "new", "light", 2).parent, "model-taught/1")
    lw2g.unlearn("model-taught/1", last=True, out="model-taught/2")
    ended = (
        "note: the last session with model ended with model-taught/2; to go on: lw2g teach model-taught/2\n"
    )
    assert ended in said("model")
    newest = said("model-taught/2")
    assert "the last session" not in newest
    assert newest.splitlines()[-1] == "go on: lw2g teach model-taught/2"


def test_a_first_step_that_fails_leaves_no_folder(first: Path, tmp_path: Path) -> None:
    """The session's folder appears with its first model."""
    shutil.copytree(first, tmp_path / "model")
    classroom = Classroom(tmp_path / "model", load_catalogue(), device="cpu")
    with pytest.raises(DataError):
        classroom.learn([Upload(folders=["cat"], name="x.png", size=2)], BytesIO(b"no"))
    classroom.close()
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_strangers_are_refused(server: Server) -> None:
    """A wrong token, another host name and another origin, on every address; the page loads nothing."""
    own, port = f"http://{server.host}", server.server_address[1]
    strangers: list[dict[str, Any]] = [
        {"query": {"token": ""}},
        {"query": {"token": server.token[:-1] + "é"}},
        {"Host": f"localhost.evil.example:{port}"},
        {"Host": None},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": f"{own}.evil.example"},
    ]
    for path, body in (("/", None), ("/state", None), ("/learn", pictures("cat")), ("/undo", b"")):
        for changes in strangers:
            assert ask(server, path, body, **changes)[0] == 403, (path, changes)
    assert ask(server, "/undo", b"", Origin=None)[0] == 403
    assert ask(server, "/../../etc/passwd")[0] == 404
    assert names(ask(server, "/state")[1]) == ["black", "grey"]
    status, page = ask(server, "/", Origin=None)
    assert status == 200
    assert not re.search(r"https?://|innerHTML|insertAdjacent|document\.write", page)


def test_no_class_is_a_path(server: Server, tmp_path: Path) -> None:
    """Names that are no plain folder are refused, and nothing is written."""
    hostile = (
        "",
        ".",
        "..",
        "../cat",
        "/tmp/cat",
        "a\\b",
        "a\0b",
        "a\nb",
        "\ud800",
        ".cat",
        "@eaDir",
        "x" * 201,
    )
    for name in hostile:
        for folders in ([name], ["cat", name], name.split("/")):
            status, answer = ask(server, "/learn", json.dumps([[folders, "x.png", 0]]).encode() + b"\n")
            assert (status, "no class can be called" in answer["error"]) == (400, True), answer
    assert [path.name for path in (tmp_path / "room").iterdir()] == ["model"]


def test_folders_in_a_class_are_read_as_in_a_terminal(server: Server) -> None:
    """Their images count to the class above them, with a note; splits are refused. No place here is named."""
    image = png(3, 0)
    splits = upload(("train/cat", "1.png", png(2, 0)), ("test/cat", "2.png", image))
    status, answer = ask(server, "/learn", splits)
    told = "the folder holds train/ and test/ and no classes; the class folders are in 'train': give that"
    assert (status, answer["error"]) == (400, told)
    sent = upload(("glass", "1.png", png(2, 0)), ("glass/close", "2.png", png(2, 1)), ("cat", "3.png", image))
    state = ask(server, "/learn", sent)[1]
    assert [(one["class"], one["images"]) for one in state["check"]["classes"]] == [("cat", 1), ("glass", 2)]
    note = "images of subfolders count to the class folder above them: 'glass/close'"
    assert note in state["check"]["warnings"]


def test_what_cannot_be_learned_is_said_in_one_line(server: Server) -> None:
    """Files that are no images, and uploads that are too large or end early; by their own names."""
    image = png(2, 0)
    for body, told in (
        (upload(("cat", "../../x.png", b"no image")), "'cat/../../x.png': it is no image of the formats"),
        (upload(("cat", "x.html", image)), "'x.html' is no image file"),
        (
            upload(("cat", "x.png", image), ("dog", "y.png", image)),
            "lies in two classes, 'cat/x.png' and 'dog/y.png'",
        ),
        (b'[[["cat"], "x.png", -1]]\n', "no list of files"),
        (b'[["cat", "x.png", 0]]\n', "no list of files"),
        (b'[[[], "x.png", 0]]\n', "no list of files"),
        (b"[" * 100_000 + b"\n", "no list of files"),
        (pictures("cat") + b"more", "another length"),
        (upload(*[("cat", "x.png", b"")] * (MOST_FILES + 1)), "501 files"),
        (upload(), "0 files"),
    ):
        status, answer = ask(server, "/learn", body)
        assert (status, told in answer["error"], "\n" in answer["error"]) == (400, True, False), answer
    assert "/tmp" not in ask(server, "/predict", b"no", query={"name": "x.png", "reject": "0.1"})[1]["error"]
    assert ask(server, "/learn", b"", **{"Content-Length": MOST_BYTES * 2})[0] == 413
    assert ask(server, "/learn", b"", **{"Content-Length": "-1"})[0] == 411
    assert ask(server, "/undo", b"")[1]["error"].startswith("the model would know no class any more")
    assert ask(server, "/state")[1]["busy"] is None


@pytest.mark.parametrize("size", ["1e400", "NaN", "-1", "1.5", "true", '"9"', "null", "[]", "9" * 5_000])
def test_a_size_that_is_no_number_of_bytes_is_refused(server: Server, size: str) -> None:
    """Whatever JSON has in its place: status 400 and one line."""
    head = f'[[["new"], "a.png", {size}]]\n'.encode()
    assert ask(server, "/learn", head + b"123") == (
        400,
        {"error": "the upload has no list of files; send it from the page"},
    )
    assert names(ask(server, "/state")[1]) == ["black", "grey"]


@pytest.mark.parametrize("rate", ["nan", "-1", "0", "1", "2", "1e400", "-inf", "", "x"])
def test_a_rate_that_is_no_share_is_refused(server: Server, rate: str) -> None:
    """A model would take it for one that rejects nothing, or all."""
    status, answer = ask(server, "/predict", png(2, 9), query={"name": "x.png", "reject": rate})
    assert status == 400
    assert answer["error"] == f"reject: expected a number between 0 and 1 but got {rate!r}; 0.05 is usual"


def test_one_step_at_a_time(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the model learns, another step is refused and the state says what is done."""
    seen = []

    def learn(*_: Any, **__: Any) -> Any:
        seen.append((ask(server, "/undo", b"")[0], ask(server, "/learn", pictures("dog"))[0]))
        seen.append(ask(server, "/state")[1]["busy"]["what"])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("lw2g_photos.classroom.learn", learn)
    assert ask(server, "/learn", pictures("cat")) == (500, {"error": "No space left on device"})
    assert seen == [(409, 409), "learning from 6 images"]


def test_advice_is_by_the_buttons_of_the_page(server: Server) -> None:
    """Of images learned as another class, and of a name that is likely misspelt: no terminal is needed."""
    status, answer = ask(server, "/learn", pictures("cup", shade=0))
    assert (status, answer["error"]) == (
        400,
        "6 images learned before as another class, first 'cup/0.png' as 'black'; keep each in one of "
        "the two: leave it out, or forget the class first (its ×)",
    )
    status, answer = ask(server, "/learn", upload(("br", "broken.png", b"no image")))
    assert (status, "folder" in answer["error"]) == (400, False)
    assert answer["error"].endswith("; choose other images")
    warnings = ask(server, "/learn", pictures("Grey"))[1]["check"]["warnings"]
    told = "'Grey' is a new class beside 'grey': if both are one, undo the last step and teach it these as "
    assert f"{told}'grey'" in warnings


def test_many_may_try_images_while_the_model_learns(server: Server) -> None:
    """Each gets the answer that the page gives one of them alone, before the step or after it."""
    query = {"name": "x.png", "reject": "0.1"}
    images = [png(shade, 20 + shade) for shade in (0, 1)]

    def tried(image: bytes) -> Any:
        status, answer = ask(server, "/predict", image, query=query)
        assert status == 200
        return json.dumps(answer)

    alone = [{tried(image)} for image in images]
    with ThreadPoolExecutor(5) as threads:
        step = threads.submit(ask, server, "/learn", pictures("light"))
        answers = list(threads.map(tried, images * 12))
        assert step.result()[0] == 200
    for place, image in enumerate(images):
        alone[place].add(tried(image))
    assert all(answer in alone[place % 2] for place, answer in enumerate(answers))
    assert len(alone[0]) == 2  # the step has changed what is said


class Dripping:
    """What is sent by somebody who never finishes."""

    def __init__(self) -> None:
        self.begun, self.ended = Event(), Event()

    def read(self, size: int, /) -> bytes:
        """Wait for more, and get none."""
        self.begun.set()
        self.ended.wait()
        return b""


@pytest.mark.parametrize("path", ["learn", "predict"])
def test_an_upload_that_drips_keeps_nobody_waiting(path: str, server: Server) -> None:
    """The model is free until everything is there: another image is answered, another step begins."""
    content, complaints, answers = Dripping(), list[str](), list[int]()

    def drip() -> None:
        one = Upload(folders=["cat"], name="x.png", size=9)
        room = server.classroom
        send = partial(room.learn, [one]) if path == "learn" else partial(room.predict, one, reject=0.1)
        with pytest.raises(DataError) as told:
            send(content=content)
        complaints.append(told.value.what)

    def others() -> None:
        query = {"name": "x.png", "reject": "0.1"}
        answers.extend([ask(server, "/predict", png(1, 9), query=query)[0], ask(server, "/undo", b"")[0]])

    slow, quick = Thread(target=drip), Thread(target=others)
    slow.start()
    content.begun.wait()
    quick.start()
    quick.join(50)
    content.ended.set()
    slow.join()
    quick.join()
    assert complaints == ["the upload ended early"]
    assert answers == [200, 400]  # nothing to undo, which is no conflict


@contextmanager
def teaching(model: Path, temporary: Path, sent: int | None = None, code: str = "") -> Iterator[Any]:
    """Run the command after some code, send it bytes of a class, or all of it, and yield its process."""
    script = f"import sys\nfrom lw2g.cli.main import main\n{code}\nmain(sys.argv[1:])"
    command = [sys.executable, "-c", script, "teach", str(model), "--device", "cpu"]
    environment = {**os.environ, "TMPDIR": str(temporary), "PYTHONUNBUFFERED": "1"}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        host, _, token = address.removeprefix("http://").partition("/?token=")
        body = pictures("cat")
        head = f"POST /learn?token={token} HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\n"
        with socket.create_connection(tuple(host.split(":"))) as connection:
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body[:sent])
            yield process


@pytest.mark.slow
def test_sigterm_leaves_no_photo_behind(first: Path, tmp_path: Path) -> None:
    """A service that is stopped in the middle of an upload removes what it has received."""
    with teaching(first, tmp_path, sent=-1) as process:
        while not [path for path in tmp_path.rglob("0004.png") if path.stat().st_size]:
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait() == -signal.SIGTERM
    assert [path.name for path in tmp_path.rglob("*.png")] == []
    assert [path.name for path in tmp_path.glob("lw2g-*")] == []


@pytest.mark.parametrize("moment", ["waiting", "told"])
def test_who_does_not_wait_for_a_step_leaves_no_photo_behind(
    first: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, moment: str
) -> None:
    """Ctrl-C says what is waited for; Ctrl-C once more goes without, as soon as the line has been read."""
    classroom = Classroom(first, load_catalogue(), device="cpu")
    received = Path(classroom._received.name)

    def interrupted() -> None:
        raise KeyboardInterrupt

    with classroom._busy("learning from 6 images"):
        step = SimpleNamespace(acquire=interrupted, release=lambda: None)
        if moment == "told":
            tell = classroom_module.tell_note
            monkeypatch.setattr(classroom_module, "tell_note", lambda text: (tell(text), interrupted()))
            step.acquire = lambda: pytest.fail("a process that was told to end waits")
        monkeypatch.setattr(classroom, "_step", step)
        with pytest.raises(KeyboardInterrupt):
            classroom.close()
    assert "learning from 6 images: the page ends when this is done" in caplog.text
    assert not received.exists()


@pytest.mark.slow
def test_a_second_ctrl_c_leaves_no_lock(first: Path, tmp_path: Path) -> None:
    """While a step is being written its lock and its parts are there; then neither, and no empty session."""
    shutil.copytree(first, tmp_path / "model")
    session = tmp_path / "model-taught"
    write_for_ever = (
        "import time\nfrom lw2g.model import places\nplaces.write_atomically = lambda *_: time.sleep(300)"
    )
    with teaching(tmp_path / "model", tmp_path, code=write_for_ever) as process:
        while not list(session.glob(".1.*.lw2g-part")):
            assert process.poll() is None
        assert (session / ".1.lw2g-lock").exists()
        process.send_signal(signal.SIGINT)
        assert "the page ends when this is done" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
    assert not session.exists()
    assert [path.name for path in tmp_path.glob("lw2g-*")] == []


def test_a_session_takes_over_what_a_killed_one_has_left(tmp_path: Path) -> None:
    """A folder with lock and parts of a first step, if nobody holds the lock or has files there."""
    for name in ("dead", "alive", "used"):
        folder = tmp_path / name
        (folder / f".1.{'0' * 16}.lw2g-part").mkdir(parents=True)
        (folder / ".1.lw2g-lock").write_text('{"pid": 1, "host": "gone", "since": "then"}')
    (tmp_path / "used" / "notes.txt").touch()
    with locked(tmp_path / "alive" / ".1.lw2g-lock"):
        made = [_made(tmp_path / name).name for name in ("dead", "alive", "used")]
    assert made == ["dead", "alive-2", "used-2"]
    with reserved(tmp_path / "dead" / "1"):
        assert [path.name for path in (tmp_path / "dead").iterdir()] == [".1.lw2g-lock"]


def test_a_port_in_use_is_said_in_one_line(server: Server, first: Path) -> None:
    """With what to do about it."""
    result = CliRunner().invoke(main, ["teach", str(first), "--port", str(server.server_address[1])])
    assert result.exit_code == 2
    assert "address already in use; name another; 0 is any free one" in result.output


def test_without_a_model_the_page_makes_the_first_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One class is enough to begin with; before it what needs a model says so in a line."""
    monkeypatch.chdir(tmp_path)
    with served(Classroom(None, load_catalogue(), backbone="micro", device="cpu")) as server:
        assert ask(server, "/state")[1]["folder"] == "no model yet: the first class makes one"
        for path, query in (
            ("/predict", {"name": "a.png", "reject": "0.05"}),
            ("/undo", {}),
            ("/forget", {}),
        ):
            status, answer = ask(server, path, png(0, 0), query=query)
            assert (status, answer["error"]) == (
                400,
                "the model knows no class yet; teach it one: drop a folder of images",
            )
        assert ask(server, "/learn", upload(("bad", "0.png", b"no image")))[0] == 400
        assert list(tmp_path.iterdir()) == []
        told = []
        for shade, name in enumerate(("black", "grey")):
            status, state = ask(server, "/learn", pictures(name, shade))
            assert status == 200, state
            told += state["check"]["warnings"]
            told += [state["rates"]["0.1"], state["cost"]]
        assert told == [
            "the model knows one class, and calls every image black: drop a folder of another class",
            "Unknown images can be told from two classes on: drop a folder of another class.",
            "",
            "",
            "old class: 6 of 6 now (before, it was the only class), each image left out in turn",
        ]
        assert state["folder"] == "model-taught/2", "as one types it here"
        assert [one["name"] for one in state["classes"]] == ["black", "grey"]
        answer = ask(server, "/predict", png(1, 9), query={"name": "a.png", "reject": "0.05"})[1]
        assert answer["top"][0]["class"] == "grey"
    assert read_export(tmp_path / "model-taught" / "1", whole=True).manifest.num_classes == 1


def test_a_model_or_a_backbone_is_named(tmp_path: Path, first: Path) -> None:
    """Neither, both, a backbone that is not there, and features: one line before the page is served."""
    rows = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32)
    np.savez(tmp_path / "rows.npz", train_x=rows, train_y=np.arange(12) % 2)
    lw2g.start(tmp_path / "rows.npz", tmp_path / "stored")
    for words, expected in (
        (
            [str(tmp_path / "stored")],
            "is on stored features, and the page teaches images; teach it by a file",
        ),
        ([], "without a model the page makes one, on a backbone; name it, as in --backbone vit-tiny"),
        ([str(first), "--backbone", "micro"], "backbone: the model has one; leave it out"),
        (["--backbone", "micro", "--weights", str(tmp_path / "no.pth")], "no.pth"),
        (["--backbone", "vit-tinny"], "vit-tinny"),
    ):
        done = CliRunner().invoke(main, ["teach", *words])
        assert done.exit_code == 2, done.output
        (line,) = done.stderr.splitlines()
        assert expected in line


def test_a_check_of_few_images_says_which_others_were_asked(server: Server) -> None:
    """In the words of `lw2g learn`, of the model as it is: after a step, and after a class is forgotten."""
    for images, asked, change in (
        (12, [6, 6], lambda: ask(server, "/state")),
        (18, [6], lambda: ask(server, "/learn", pictures("light", 2))),
        (24, [6], lambda: ask(server, "/learn", pictures("white", 3))),
        (18, [6, 6, 6], lambda: ask(server, "/forget", b"", query={"name": "light"})),
    ):
        status, state = change()
        assert status == 200
        said = f"100.0 % of {images} images, each left out in turn (95 % interval "
        assert state["total"].startswith(said)
        assert [one["checked"] for one in state["check"]["classes"]] == asked


def test_one_class_is_forgotten(server: Server, first: Path) -> None:
    """Any class may go, not only that of the last step; what cannot go is said, and undo goes back before it.

    A window that has not seen the last step takes nothing back.
    """
    seen = [
        ask(server, "/learn", pictures(name, shade))[1]["folder"]
        for shade, name in ((2, "light"), (3, "white"))
    ]
    for path in ("/forget", "/undo"):
        status, answer = ask(server, path, b"", query={"name": "light", "at": seen[0]})
        assert (status, answer["error"].split(";")[0]) == (409, "another window has changed the model")
    status, state = ask(server, "/forget", b"", query={"name": "light", "at": seen[1]})
    assert status == 200
    assert [one["name"] for one in state["classes"]] == ["black", "grey", "white"]
    assert state["folder"].endswith("model-taught/3")
    # all that are there were asked again; the old model is named, and nothing is told of what a step cost
    rows = [(one["class"], one["new"], one["checked"]) for one in state["check"]["classes"]]
    assert rows == [(name, False, 6) for name in ("black", "grey", "white")]
    still = f"{seen[1]} still knows light: to go back to it, undo the last step"
    assert (state["check"]["warnings"], state["cost"]) == ([still], "")
    status, answer = ask(server, "/forget", b"", query={"name": "light"})
    assert status == 400
    assert answer["error"].startswith("no class is called 'light' any more")
    assert ask(server, "/state")[1]["folder"] == state["folder"]
    assert ask(server, "/forget", b"", query={"name": "grey"})[0] == 200
    assert ask(server, "/undo", b"")[1]["folder"] == state["folder"]
    back = ask(server, "/undo", b"")[1]
    assert (back["folder"], back["undo"], names(back)) == (seen[1], True, ["black", "grey", "light", "white"])
    assert ask(server, "/forget", b"", query={"name": "light"})[1]["folder"].endswith("model-taught/5")
    # nor is it told once a later step is undone: old classes were asked while the class was known
    assert ask(server, "/learn", pictures("pale", 4))[1]["undo"]
    undone = ask(server, "/undo", b"")[1]
    assert (undone["undo"], undone["forgot"], undone["cost"]) == (True, True, "")
    again = ask(server, "/learn", pictures("light", 2))[1]
    assert "a class of this name was forgotten before: light" in again["check"]["warnings"]


def test_pictures_of_one_thing_are_told_as_a_series(server: Server) -> None:
    """Beside the check, and after all that changes the model; a camera makes them, which nobody notices."""
    thing = np.random.default_rng(0).integers(0, 200, (16, 16, 3))
    entries = []
    for number in range(20):
        buffer = BytesIO()
        Image.fromarray((thing + number % 7).astype(np.uint8)).save(buffer, format="PNG")
        entries.append(("cup", f"camera {number}.png", buffer.getvalue()))
    told = "nearly the same as another of their class (a series of one object?)"
    taught = ask(server, "/learn", upload(*entries))[1]
    first = taught["check"]["warnings"][0]
    assert told in first
    assert first.endswith(f"lw2g test {taught['folder']} FOLDER")
    assert taught["told"].endswith(", with a series (see the last check)")
    forgot = ask(server, "/forget", b"", query={"name": "black"})[1]
    assert [told in warning for warning in forgot["check"]["warnings"]] == [False, True]
    back = ask(server, "/undo", b"")[1]
    assert told in back["check"]["warnings"][0]
    assert not any(told in one for one in (ask(server, "/undo", b"")[1]["check"] or {}).get("warnings", ()))


def test_undo_goes_back_through_steps_of_both_kinds(server: Server) -> None:
    """What was forgotten before a later step comes back, too; before the page was opened it does not."""
    taught = ask(server, "/learn", pictures("light", 2))[1]
    ask(server, "/forget", b"", query={"name": "black"})
    ask(server, "/learn", pictures("white", 3))
    ask(server, "/forget", b"", query={"name": "grey"})
    known = [names(ask(server, "/undo", b"")[1]) for _ in range(2)]
    assert known == [["grey", "light", "white"], ["grey", "light"]]
    at = server.classroom.newest
    back = ask(server, "/undo", b"")[1]
    assert (back["folder"], names(back), back["undo"]) == (taught["folder"], names(taught), True)
    undone = ask(server, "/undo", b"")[1]
    assert (names(undone), undone["undo"], undone["forgot"]) == (["black", "grey"], False, False)
    assert at is not None
    later = Classroom(at, load_catalogue(), device="cpu")
    state = later.state()
    later.close()
    assert (state["undo"], state["forgot"]) == (False, True)


@contextmanager
def in_browser(*arguments: str, **options: Any) -> Iterator[Any]:
    """Yield a page of a real browser."""
    with chromium(*arguments) as browser:
        yield browser.new_page(**options)


def drop(page: Any, paths: list[Path]) -> None:
    """Drop files or folders on the page's field for teaching, as a file manager does."""
    box = page.locator("#teach").bounding_box()
    at = {"x": box["x"] + box["width"] / 2, "y": box["y"] + 5}
    data = {"items": [], "files": [str(path) for path in paths], "dragOperationsMask": 1}
    session = page.context.new_cdp_session(page)
    for kind in ("dragEnter", "dragOver", "drop"):
        session.send("Input.dispatchDragEvent", {"type": kind, **at, "data": data})


RIGHT_END = "(selector) => document.querySelector(selector).getBoundingClientRect().right"


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_fits_and_tells_pairs_of_many_classes(tmp_path: Path, width: int, scheme: Any) -> None:
    """Nothing is wider than the window; beyond twenty classes confused pairs stand in place of the matrix."""
    for number in range(22):
        made = tmp_path / "images" / f"a class with a long name, number {number}"
        made.mkdir(parents=True)
        for place in range(6):
            (made / f"{place}.png").write_bytes(png(number // 8, 10 * number + place))
    lw2g.start(tmp_path / "images", tmp_path / "model", device="cpu")
    classroom = Classroom(tmp_path / "model", load_catalogue(), device="cpu")
    with Server(classroom) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        with in_browser(viewport={"width": width, "height": 900}, color_scheme=scheme) as page:
            page.goto(server.address)
            page.wait_for_selector("#confusion tr")
            page.set_input_files("#image", list((tmp_path / "images").rglob("0.png"))[:3])
            page.wait_for_selector(".tried >> nth=2")
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            # what was found of a class is seen without scrolling
            assert page.locator("#check th >> nth=4").inner_text() == "found"
            frame = page.evaluate(RIGHT_END, ".wide:has(#check)")
            assert page.evaluate(RIGHT_END, "#check th:nth-child(5)") <= frame
            first_pair = page.locator("#confusion tr").first.inner_text()
            assert re.search(r"taken for\s.*\d+ of 6$", first_pair, re.DOTALL)
            assert page.locator("#confusion tr").count() <= 20
            # a matrix that is cut off fades out there, until its end is in sight
            state = ask(server, "/state")[1]
            counts = [[0] * 15 for _ in range(15)]
            page.evaluate("show", state | {"classes": state["classes"][:15], "confusion": counts})
            faded = page.locator(".wide.more:has(#confusion)")
            assert faded.count() == (width == 390)
            if pictures_at := os.environ.get("LW2G_PICTURES"):
                page.screenshot(path=Path(pictures_at) / f"teach-{width}-{scheme}.png", full_page=True)
            page.locator(".wide:has(#confusion)").evaluate("(frame) => frame.scrollBy(9999, 0)")
            faded.wait_for(state="detached")
            # of a table that is cut off below, too, one sees that it goes on; the matrix is shown whole
            below = page.locator(".wide.below")
            assert below.count() == (2 if width == 390 else 0)
            assert page.locator(".wide.below:has(#confusion)").count() == 0
            for frame in page.locator(".wide").all():
                frame.evaluate("(frame) => frame.scrollBy(0, 9999)")
            below.first.wait_for(state="detached")
        server.shutdown()
        thread.join()
    classroom.close()


@pytest.mark.slow
def test_the_page_says_what_a_newcomer_needs(server: Server, tmp_path: Path) -> None:
    """Of an unknown image its nearest class alone, what is new or gained, no camera, no undo and why."""
    with in_browser() as page:
        page.on("dialog", lambda dialog: dialog.accept())
        page.goto(server.address.partition("?")[0])
        assert (
            page.inner_text("body")
            == "Open the address that lw2g teach printed: this one has no valid token."
        )
        page.goto(server.address)
        page.wait_for_selector("#check tr")
        assert page.locator("#check td:nth-child(2)").all_inner_texts() == ["", ""]
        assert "taken for" not in page.inner_text("#check")  # all were found
        assert "no step of learning" in page.get_attribute("#undo", "title")
        assert page.is_hidden("#stuck")
        page.select_option("#reject", "0.1")
        assert page.is_hidden("#few")
        page.select_option("#reject", "0.05")
        assert page.inner_text("#few").startswith("Too few images to call any unknown at 5 %: 12 of the 19")
        page.select_option("#reject", "0.1")
        page.set_input_files("#image", folder(tmp_path, "white", 3) / "0.png")
        page.wait_for_selector(".answer:has-text('unknown (nearest: ')")
        assert page.locator(".tried td.number").all_inner_texts() == []
        page.click("#camera")
        page.wait_for_selector(
            "#message:has-text('the camera cannot be used'):has-text('choose files instead')"
        )
        page.set_input_files("#folders", tmp_path / "white")
        page.wait_for_selector("#message:has-text('model-taught/1')")
        assert page.locator("#check td:nth-child(2)").all_inner_texts() == ["new"]
        state = ask(server, "/state")[1]
        changed = {"warnings": ["ant and bee (12 % confused)"]}
        cost = "old classes: 80.0 % before and now, each image left out in turn"
        page.evaluate("show", state | {"check": state["check"] | changed, "cost": cost})
        assert page.locator("#warnings li").text_content() == "ant and bee (12\u00a0% confused)"
        assert page.inner_text("#cost") == f"Old{cost[3:]}"
        assert "images of other things" in page.inner_text("p:has(#reject)")
        assert page.inner_text("#last") == "Last check"
        assert re.fullmatch(
            r"In a terminal: lw2g predict .*model-taught/1 PHOTO --reject 0\.1", page.inner_text("#use")
        )
        for width in range(40, 200, 5):
            page.evaluate("width => document.querySelector('p:has(#use)').style.width = `${width}px`", width)
            rows = page.locator("#rate").evaluate("option => option.getClientRects().length")
            assert rows == 1, f"an option that is broken cannot be typed as it stands: {width} pixels"
        learned = r"learned \d+ images?; the model is now .*model-taught/1; accuracy 100.0 % of 18 images, .*"
        assert re.fullmatch(learned, page.inner_text("#message"))
        page.click(".forget >> nth=0")
        page.wait_for_selector("#message:has-text('is forgotten')")
        assert "model-taught/1 still knows it" in page.inner_text("#message")
        assert page.locator("#check td:nth-child(2)").all_inner_texts() == ["", ""]
        assert page.inner_text("#cost") == ""
        assert page.is_enabled("#undo")
        page.evaluate("show", ask(server, "/state")[1] | {"undo": False})
        assert page.inner_text("#stuck").startswith(
            "A class was forgotten before the page was opened: a folder"
        )
        # few were set apart, so that all are asked again, of the model as it is now
        assert page.inner_text("#last") == "Last check"
        page.evaluate("show", ask(server, "/state")[1] | {"anew": False})
        assert page.inner_text("#last") == "Last check, before a class was forgotten"
        one = [{"name": "white", "images": 4}]
        page.evaluate("show", ask(server, "/state")[1] | {"classes": one, "confusion": [[4]]})
        assert page.locator("#check th").all_inner_texts() == ["class", "", "images"]
        assert page.is_hidden("#taken")


@pytest.mark.slow
def test_two_classes_are_taught_in_a_browser(server: Server, tmp_path: Path) -> None:
    """By folders, one with a hostile name; an image is tried, and the last step is undone."""
    problems: list[str] = []
    asked: list[str] = []
    with in_browser() as page:
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(server.address)
        for shade, name in ((2, "light"), (3, NASTY)):
            page.set_input_files("#folders", folder(tmp_path, name, shade))
            page.wait_for_selector(f"#message:has-text('model-taught/{shade - 1}')")
        assert page.locator("#classes td:first-child").all_inner_texts() == ["black", "grey", "light", NASTY]
        assert page.locator("#confusion > tr").count() == 4
        # on a narrow screen the check is far below
        assert re.search(r"; accuracy [\d.]+ % of \d+ images, each left out", page.inner_text("#message"))
        total = page.inner_text("#total")
        assert re.match(r"Accuracy: [\d.]+ % of \d+ images, each left out in turn \(95 % interval ", total)
        assert page.locator("img").count() == 0  # no broken picture before the first try
        page.set_input_files("#image", [tmp_path / NASTY / "0.png", tmp_path / "light" / "0.png"])
        page.wait_for_selector(".tried >> nth=1")
        assert page.locator(".answer").all_inner_texts() == [NASTY, "light"]
        shares = page.evaluate("[0.8749, 0.9994, 0.9999, 0.0].map(probable)")
        assert shares == [percent(share) for share in (0.8749, 0.9994, 0.9999, 0.0)]
        (tmp_path / "bad.png").write_bytes(b"no image")
        page.set_input_files("#image", tmp_path / "bad.png")
        page.wait_for_selector(".tried .error:has-text('bad.png')")
        assert page.locator(".answer").count() == 0  # no old answer beside the error
        page.set_input_files("#image", [tmp_path / "bad.png", tmp_path / NASTY / "0.png"])
        page.wait_for_selector(".answer")
        assert page.locator(".tried .error").count() == 1
        page.click("#undo")
        page.wait_for_selector("#message:has-text('model-taught/3')")
        assert page.locator("#classes td:first-child").all_inner_texts() == ["black", "grey", "light"]
        page.wait_for_selector(".answer:not(:has-text('img'))")  # tried again with the model as it is now
        assert page.locator(".tried .error").count() == 0  # but for what is no image
        assert page.title() == "lw2g teach"
        # one image of two is none: one is counted; and a class that cannot be asked is named, with the reason
        (folder(tmp_path, "alone", 3, count=1) / "bad.png").write_bytes(b"no image")
        page.set_input_files("#folders", tmp_path / "alone")
        page.wait_for_selector("#message:has-text('learned 1 image; the model is now')")
        rows = [row.split() for row in page.locator("#confusion > tr").all_inner_texts()]
        assert [row[0] for row in rows] == ["black", "grey", "light", "alone"]
        assert " ".join(rows[3]) == "alone its only image: without it the model does not know the class"
        server.shutdown()
        server.server_close()
        page.click("#undo")
        page.wait_for_selector("#message .error:has-text('lw2g teach does not answer')")
    problems = [text for text in problems if "400" not in text and "ERR_CONNECTION" not in text]
    assert problems == []
    assert all(url.startswith((f"http://{server.host}/", "blob:")) for url in asked)


@pytest.mark.slow
def test_images_without_a_folder_are_taught_by_the_name_of_their_class(
    server: Server, tmp_path: Path
) -> None:
    """A field asks for it, with the known ones; what cannot be a name keeps the images; by keys alone."""
    chosen = sorted(folder(tmp_path, "any", 2).iterdir())
    with in_browser() as page:
        page.goto(server.address)
        page.wait_for_selector("#classes tr")
        page.set_input_files("#files", tmp_path / "any" / "0.png")
        page.wait_for_selector("#loose:has-text('Class of the 1 image:')")
        page.focus("#leave")
        page.keyboard.press("Enter")
        page.wait_for_selector("#loose", state="hidden")
        page.set_input_files("#files", chosen[:2])
        page.wait_for_selector("#loose:has-text('Class of the 2 images:')")
        page.fill("#named", "other")
        page.set_input_files("#files", chosen[:4])  # takes the place of the first, whose name was not theirs
        page.wait_for_selector("#loose:has-text('Class of the 4 images:')")
        assert page.input_value("#named") == ""
        drop(page, chosen[4:])  # joins it, and the page says so
        page.wait_for_selector("#loose:has-text('Class of the 6 images:')")
        assert page.inner_text("#message") == "2 more images, 6 in all; Cancel takes all away"
        page.wait_for_selector("#named:focus")
        known = page.locator("#known option").evaluate_all("(all) => all.map((one) => one.value)")
        assert known == ["black", "grey"]
        for typed, told in (("", "name the class first"), ("a/b", "give another name")):
            page.fill("#named", typed)
            page.keyboard.press("Enter")
            page.wait_for_selector(f"#message .error:has-text('{told}')")
            assert page.is_visible("#loose")
        held: list[Any] = []
        page.route("**/learn?*", lambda route: held.append(route))
        page.fill("#named", "light")
        with page.expect_request("**/learn?*"):
            page.keyboard.press("Enter")
        page.set_input_files("#files", chosen[:2])  # while the others are learned: these wait for their name
        held.pop().continue_()
        page.unroute("**/learn?*")
        page.wait_for_selector("#message:has-text('learned 6 images; the model is now')")
        assert page.locator("#classes td:first-child").all_inner_texts() == ["black", "grey", "light"]
        assert page.is_visible("#loose:has-text('Class of the 2 images:')")
        page.click("#leave")
        page.wait_for_selector("#loose", state="hidden")
        (tmp_path / "notes.txt").write_text("none")
        page.set_input_files("#files", tmp_path / "notes.txt")
        page.wait_for_selector("#message .error:has-text('no images that can be read (1 .txt)')")
        assert page.is_hidden("#loose")


@pytest.mark.slow
@pytest.mark.usefixtures("without_heic")
def test_what_is_passed_over_is_told_before_anything_is_taught(server: Server, tmp_path: Path) -> None:
    """Beside the field for the class, and with what makes photos of phones readable."""
    image = folder(tmp_path, "any", 2) / "0.png"
    phone, notes = tmp_path / "1.HEIC", tmp_path / "notes.txt"
    for path in (phone, notes):
        path.write_bytes(b"none")
    way = "convert HEIC to JPEG or PNG, or for HEIC pip install pillow-heif"
    with in_browser() as page:
        page.goto(server.address)
        page.wait_for_selector("#classes tr")
        page.set_input_files("#files", phone)
        page.wait_for_selector(f"#message .error:has-text('no images that can be read (1 .heic): {way}')")
        page.set_input_files("#files", [image, phone, notes])
        page.wait_for_selector("#loose:has-text('Class of the 1 image (passed over: 1 .heic, 1 .txt):')")
        assert page.inner_text("#message") == way
        page.fill("#named", "light")
        page.keyboard.press("Enter")
        told = f"learned 1 image, passed over 1 .heic, 1 .txt ({way}); the model is now"
        page.wait_for_selector(f"#message:has-text('{told}')")


@pytest.mark.slow
def test_an_image_beside_class_folders_makes_no_class(server: Server, tmp_path: Path) -> None:
    """It is refused as a terminal refuses it, chosen or dropped; what a program has hidden is passed over."""
    photos = tmp_path / "photos"
    folder(photos, "light", 2)
    folder(photos, ".cache", 3)
    (photos / "stray.png").write_bytes(png(3, 0))
    refused = CliRunner().invoke(main, ["learn", str(server.classroom.newest), str(photos)])
    assert refused.exit_code == 2
    with in_browser() as page:
        page.goto(server.address)
        page.wait_for_selector("#classes tr")
        give = (partial(page.set_input_files, "#folders", photos), partial(drop, page, [photos]))
        for one in give:
            page.evaluate("say('')")
            one()
            said = page.inner_text("#message .error")
            assert (
                said
                == "the image 'stray.png' lies in no class; move it into a class folder, or out of photos"
            )
            assert said.removesuffix("photos") in refused.stderr
        page.evaluate("say('')")
        (photos / "other.png").write_bytes(png(3, 1))
        give[1]()
        page.wait_for_selector(
            "#message .error:has-text('2 images lie in no class, first '):has-text('move each')"
        )
        assert page.locator("#classes td:first-child").all_inner_texts() == ["black", "grey"]
        for name in ("stray.png", "other.png"):
            (photos / name).unlink()
        give[1]()
        page.wait_for_selector("#message:has-text('learned 6 images; the model is now')")
        assert page.locator("#classes td:first-child").all_inner_texts() == ["black", "grey", "light"]


@pytest.mark.slow
def test_the_page_finds_the_classes_that_a_terminal_finds(server: Server, tmp_path: Path) -> None:
    """A class is a folder in the one that is given, or each of several; folders in it belong to it."""
    photos = tmp_path / "photos"
    for shade, name in enumerate(("light", "light/close", "pale/images", "white")):
        folder(photos, name, 2, count=2 + shade)
    for number, path in enumerate(sorted(photos.rglob("*.png"))):
        path.write_bytes(png(3, number))
    found = [[name, str(len(one.paths))] for name, one in read_class_folders(photos).items()]
    with in_browser() as page:
        page.goto(server.address)
        page.wait_for_selector("#classes tr")
        ways = (
            partial(page.set_input_files, "#folders", photos),
            partial(drop, page, [photos]),
            partial(drop, page, sorted(photos.iterdir())),
        )
        for way in ways:
            way()
            page.wait_for_selector("#message:has-text('learned 14 images; the model is now')")
            rows = page.locator("#classes tr").all_inner_texts()
            assert [row.split()[:2] for row in rows] == [["black", "6"], ["grey", "6"], *found]
            page.click("#undo")
            page.wait_for_selector("#message:has-text('the last step is undone')")


@pytest.mark.slow
def test_a_class_is_made_with_the_camera_and_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a model: the camera (Chromium's own test picture) gives a class, is asked, and goes off."""
    monkeypatch.chdir(tmp_path)
    problems: list[str] = []
    flags = ("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")
    with (
        served(Classroom(None, load_catalogue(), backbone="micro", device="cpu")) as server,
        in_browser(*flags) as page,
    ):
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(server.address)
        page.wait_for_selector("#folder:has-text('no model yet')")
        assert page.locator("#taken").is_hidden()
        page.set_input_files("#folders", folder(tmp_path, "dark", 0))
        page.wait_for_selector("#message:has-text('model-taught/1')")
        assert page.locator("#taken").is_hidden()  # one class is taken for no other
        assert page.locator(".forget").is_disabled()  # the only class
        page.click("#camera")
        page.wait_for_selector("#booth:not([hidden])")
        page.click("#shoot")
        page.wait_for_selector("#message .error:has-text('name the class first')")
        page.fill("#called", "test picture")
        page.click("#shoot")
        page.wait_for_selector("#message:has-text('model-taught/2')")
        assert page.locator("#taken").is_visible()
        assert page.locator("#classes td:first-child").all_inner_texts() == ["dark", "test picture"]
        assert page.locator("#classes .number").all_inner_texts()[1] == "20 images"
        page.click("#look")
        page.wait_for_selector(".answer")
        assert page.locator(".answer").inner_text() == "test picture"
        page.click("#camera")
        page.wait_for_selector("#booth", state="hidden")
        assert page.evaluate("document.getElementById('view').srcObject") is None
        page.click("button[title='Forget dark']")  # Playwright says no to what is asked
        assert page.locator("#classes td:first-child").all_inner_texts() == ["dark", "test picture"]
        page.on("dialog", lambda dialog: dialog.accept())
        page.focus("button[title='Forget dark']")
        page.keyboard.press("Enter")
        page.wait_for_selector("#message:has-text('dark is forgotten; the model is now')")
        assert page.locator("#classes td:first-child").all_inner_texts() == ["test picture"]
        page.wait_for_selector("#message:focus")  # by keys one goes on from what was said
    assert problems == []
