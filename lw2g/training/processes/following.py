"""What the further processes of a run do: go through it with the first one, and write nothing."""

from __future__ import annotations

import hashlib
import os
import sys
import threading
import traceback
import warnings
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torch import Tensor

from lw2g.config.resolve import load_resolved
from lw2g.config.sources import load_source
from lw2g.errors import DataError, Lw2gError
from lw2g.registry.catalogue import Catalogue, load_catalogue
from lw2g.training.boundary import guarded
from lw2g.training.files.checkpoint import Checkpoint, CheckpointStore
from lw2g.training.files.record import RunDirectory
from lw2g.training.processes.assembling import joined, testify
from lw2g.training.processes.errand import Errand, require_ready
from lw2g.training.processes.place import Place
from lw2g.training.processes.team import ProcessLostError, Team
from lw2g.training.progress import Interrupted, StopRequest, stop_on_interrupt
from lw2g.training.run import Run
from lw2g.training.session import open_session

__all__ = ["follow"]


class _Unwritten(RunDirectory):
    """The files of a run in a process that writes none; it remembers what is read again."""

    def __init__(self) -> None:
        super().__init__(Path(os.devnull))
        self._record: Mapping[str, Any] | None = None

    def listeners(self) -> list[Any]:
        return []

    def write(self, name: str, content: bytes) -> str:
        return hashlib.sha256(content).hexdigest()

    def write_config(self, text: str) -> str:
        return self.write("", text.encode())

    def write_predictions(self, task: int, predictions: Any) -> str:
        return ""

    def write_goal(self, tasks: int | None) -> None:
        return None

    def write_record(self, record: Mapping[str, Any]) -> None:
        self._record = record

    def read_record(self) -> dict[str, Any]:
        if self._record is None:
            raise DataError("no record")
        return dict(self._record)


class _Unkept(CheckpointStore):
    """The checkpoints of a run in a process that writes none."""

    @property
    def base(self) -> Mapping[str, Tensor]:
        return {}

    def save(self, checkpoint: Checkpoint, keep: int = 2) -> Path:
        return Path(os.devnull)

    save_behind = save


def follow(place: Place, catalogue: Catalogue | None = None) -> None:
    """Take part in whatever the first process runs, until it lets go.

    Args:
        place: Where this process stands.
        catalogue: Where components come from; None for all that are installed.

    Raises:
        SystemExit: It ends before, with exit code 1; the first process says why.
    """
    warnings.simplefilter("ignore")  # the first process warns of the same
    try:
        with (
            stop_on_interrupt(patient=True) as stop,
            joined(place, lambda: "the first process ended") as team,
        ):
            known = catalogue or load_catalogue()
            while (errand := team.broadcast(None)) is not None:
                _take_part(errand, team, known, stop)
    except ProcessLostError:
        sys.exit(1)
    except Lw2gError as error:
        testify(place, str(error))
        sys.exit(1)
    except Exception as error:
        testify(place, "".join(traceback.format_exception_only(error)).strip())
        raise


def _take_part(errand: Errand, team: Team, catalogue: Catalogue, stop: StopRequest) -> None:
    stop.wanted = stop.due = False
    with TemporaryDirectory() as folder:
        texts = [Path(folder) / f"{number}.toml" for number in range(1 + len(errand.sources))]
        for path, text in zip(texts, (errand.config, *errand.sources), strict=True):
            path.write_text(text, encoding="utf-8")
        complaint = ""
        try:
            resolved = load_resolved(texts[0], catalogue)
            later = tuple(load_source(catalogue, path) for path in texts[1:])
            with guarded(catalogue, resolved.config):
                session = open_session(resolved.config, catalogue, later, team)
            complaint = errand.differences(session)
        except Lw2gError as error:
            complaint = str(error)
        if complaint:
            require_ready(team, complaint)
    run = Run(resolved, session, _Unwritten(), _Unkept(Path(os.devnull)), stop)
    run.follow(errand)
    with guarded(catalogue, resolved.config):
        try:
            run.go_on([])
        except Interrupted:
            return


def _end_with_the_first() -> None:
    """End where the pipe from the process that started this one is closed, however that ended."""

    def wait() -> None:
        os.read(0, 1)  # not through sys.stdin, which could not be let go of at the end
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _main() -> None:
    place = Place.told()
    if place is None:
        sys.exit(
            "lw2g.training.processes.following takes part in a run that another process began; see lw2g run"
        )
    _end_with_the_first()
    follow(place)


if __name__ == "__main__":
    _main()
