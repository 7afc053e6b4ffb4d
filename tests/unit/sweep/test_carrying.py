"""Runs that are worked on elsewhere and copied back: what is at home is what a crash would have left."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lw2g.config.directory import LOCK, STOP
from lw2g.sweep.carrying import Home, carried
from lw2g.sweep.job import Job
from lw2g.training.files.lock import writer_of

Meanwhile = Callable[[], None]


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """A job at home, of which changes are carried whenever there is time."""
    monkeypatch.setattr("lw2g.sweep.carrying._SECONDS", 0)
    (tmp_path / "cell.toml").write_text("[run]\nseed = 1\n")
    return Job(name="x", run=tmp_path / "x", config=tmp_path / "cell.toml", log=tmp_path / "x.log")


def test_a_run_goes_out_and_comes_home(job: Job) -> None:
    """New and changed files are copied, oldest first, removed ones are removed, and the scratch is gone."""
    order: list[str] = []

    class Watching(Home):
        def bring(self, job, files, kept, said):
            order.extend(files)
            return super().bring(job, files, kept, said)

    def attempt(away: Job, meanwhile: Meanwhile) -> int:
        assert (away.config.read_text(), away.arguments()[0]) == (job.config.read_text(), "run")
        (away.run / "checkpoints").mkdir(parents=True)
        for turn, name in enumerate(["checkpoints/b", "config.toml", "a"]):
            (away.run / name).write_text(name)
            os.utime(away.run / name, ns=(turn, turn))
        away.log.write_text("one\n")
        meanwhile()
        assert (job.run / "checkpoints" / "b").read_text() == "checkpoints/b"
        (away.run / "a").unlink()
        (away.run / "config.toml").write_text("changed")
        with away.log.open("a") as log:
            log.write("two\n")
        seen.append(away.run)
        return 7

    seen: list[Path] = []
    assert carried(job, Watching(), attempt) == 7
    assert order == ["checkpoints/b", "config.toml", "a", "config.toml"]
    assert sorted(path.name for path in job.run.rglob("*")) == ["b", "checkpoints", "config.toml"]
    assert ((job.run / "config.toml").read_text(), job.log.read_text()) == ("changed", "one\ntwo\n")
    assert not seen[0].exists()


def test_what_has_begun_goes_on_elsewhere(job: Job) -> None:
    """The next machine has all files of the run, and neither the lock nor a request of before."""
    job.run.mkdir()
    for name in ("config.toml", "record.json", LOCK, STOP, "progress.json"):
        (job.run / name).write_text(name)

    def attempt(away: Job, meanwhile: Meanwhile) -> int:
        assert away.arguments() == ("resume", str(away.run))
        assert sorted(path.name for path in away.run.iterdir()) == ["config.toml", "record.json"]
        meanwhile()
        assert not (away.run / STOP).exists()
        return 0

    assert carried(job, Home(), attempt) == 0


def test_heartbeat_and_request_are_handed_on(job: Job) -> None:
    """At home the lock shows who writes, wherever that is; a request to stop that lies there is brought."""

    def attempt(away: Job, meanwhile: Meanwhile) -> int:
        away.run.mkdir()
        (away.run / LOCK).write_text(json.dumps({"pid": 1, "host": "elsewhere", "since": "then"}))
        meanwhile()
        os.utime(job.run / LOCK, (0, 0))
        meanwhile()
        found = writer_of(job.run)
        assert found is not None
        assert found.host == "elsewhere"
        (job.run / STOP).touch()
        meanwhile()
        assert ((away.run / STOP).exists(), (job.run / STOP).exists()) == (True, False)
        (away.run / LOCK).unlink()
        return 130

    assert carried(job, Home(), attempt) == 130
    assert writer_of(job.run) is None


def test_a_moment_of_change_is_let_pass(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that change while they are read are of no one moment: nothing of them goes home."""

    def attempt(away: Job, meanwhile: Meanwhile) -> int:
        away.run.mkdir()
        (away.run / "a").write_text("1")
        read = Path.read_bytes

        def reading(path: Path) -> bytes:
            (away.run / "b").write_text("written meanwhile")
            return read(path)

        with monkeypatch.context() as patched:
            patched.setattr(Path, "read_bytes", reading)
            meanwhile()
        assert not job.run.exists()
        return 0

    carried(job, Home(), attempt)
    assert sorted(path.name for path in job.run.iterdir()) == ["a", "b"]
