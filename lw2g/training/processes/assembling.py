"""Bringing the processes of a run together, and letting them go: started here, or by torchrun on all hosts.

The first process is the one that was asked for the run. The others hold no files of it: they are told what is
run, open the same session, and go through the same steps (:mod:`lw2g.training.processes.following`).
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta

import torch
from torch import distributed
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from lw2g.config.model import RunConfig
from lw2g.training.devices.engine import fabric_of
from lw2g.training.processes.place import Place
from lw2g.training.processes.team import ALONE, Team
from lw2g.training.progress import Interrupted

__all__ = ["assembled", "joined", "testify"]

_GRACE = 5.0
"""Seconds in which a process that has ended is found, or ends after it was told to."""
_SHORT = timedelta(seconds=3)
_AT_THE_STORE = {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0"}
"""Lets processes meet at a store that is there already, as torchrun's."""


@contextmanager
def assembled(run: RunConfig, devices: int | None = None, team: Team | None = None) -> Iterator[Team]:
    """Yield the processes that work on a run; those that are started for it end with the block.

    Args:
        run: Says how many.
        devices: In its place, where one is named; torchrun's number counts before both.
        team: Those that stand together already.

    Raises:
        ProcessLostError: One of them has ended.
    """
    place = Place.told()
    count = devices or run.devices
    if team is not None or (place is None and count == 1):
        yield team or ALONE
        return
    if place is not None:
        with joined(place, lambda: _told_by_the_fallen(place)) as made:
            yield made
        return
    # listens at a port that the system chooses: one looked for beforehand could be taken by then
    meeting = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    here = Place.first_of(count, meeting.port)
    threads = torch.get_num_threads()
    each = max(1, threads // count)  # as many in all processes: numbers of threads decide last bits
    others = _Others(here, each)
    try:
        os.environ.update(_AT_THE_STORE)
        torch.set_num_threads(each)
        with joined(here, lambda: others.fallen() or _told_by_the_fallen(here)) as made:
            yield made
        others.wait()
    finally:
        others.end()
        torch.set_num_threads(threads)
        for name in _AT_THE_STORE:
            del os.environ[name]


@contextmanager
def joined(place: Place, ended: Callable[[], str]) -> Iterator[Team]:
    """Yield the process as one among several; it leaves them with the block.

    Args:
        place: Where it stands.
        ended: Says who has ended, once others cannot be reached.
    """
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # else it tells of every process
    team, before = Team(place, ended), dict(os.environ)
    try:
        with team.together():
            fabric_of(place, "cpu").launch()
        try:
            yield team
        except Interrupted:  # in all processes at the same step
            _dismiss(team)
            raise
        _dismiss(team)
    finally:
        if distributed.is_initialized():
            with suppress(RuntimeError):
                distributed.destroy_process_group()
        for name in os.environ.keys() - before.keys():  # where the processes meet is no concern of others
            del os.environ[name]


def _dismiss(team: Team) -> None:
    """Let the others go; they wait to be told what is next."""
    if team.writes:
        team.broadcast(None)


def testify(place: Place, why: str) -> None:
    """Tell the first process why this one ends, if it can be reached still."""
    with suppress(RuntimeError):
        _store(place).set("lw2g/ended", json.dumps([place.rank, why]))


def _told_by_the_fallen(place: Place) -> str:
    """Return why a process has ended, where it could tell."""
    with suppress(RuntimeError):
        store = _store(place)
        store.wait(["lw2g/ended"], _SHORT)
        rank, why = json.loads(store.get("lw2g/ended"))
        return f"process {rank + 1} of {place.size} ended ({why})"
    return f"one of {place.size} processes ended or cannot be reached"


def _store(place: Place) -> TCPStore:
    return TCPStore(place.main_address, place.main_port, timeout=_SHORT, wait_for_workers=False)


class _Others:
    """The further processes of this host.

    Each ends by itself once this one does: it holds the other end of a pipe.

    Args:
        place: That of the first.
        threads: For each of them.
    """

    def __init__(self, place: Place, threads: int) -> None:
        self._size = place.size
        shared = {
            **os.environ,
            **_AT_THE_STORE,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "OMP_NUM_THREADS": str(threads),
            "TORCH_CPP_LOG_LEVEL": "ERROR",  # that the first process has gone needs no page
        }
        command = [sys.executable, "-m", "lw2g.training.processes.following"]
        self._processes = [
            # a session of its own: Ctrl-C is for the first, which tells the others
            subprocess.Popen(
                command, env=shared | place.told_to(rank), stdin=subprocess.PIPE, start_new_session=True
            )
            for rank in range(1, place.size)
        ]

    def fallen(self) -> str:
        """Return which one was killed; empty where none was found within a while."""
        until = time.monotonic() + _GRACE
        while time.monotonic() < until:
            codes = {number: one.poll() for number, one in enumerate(self._processes, start=2)}
            killed = [(number, code) for number, code in codes.items() if code is not None and code < 0]
            if killed:
                number, code = killed[0]
                return f"process {number} of {self._size} ended (killed by {signal.Signals(-code).name})"
            if any(code is not None for code in codes.values()):
                return ""  # it could tell why
            time.sleep(0.05)
        return ""

    def wait(self) -> None:
        """Wait until all have ended, as they were told to."""
        _wait(self._processes)

    def end(self) -> None:
        """End those that have not ended."""
        for one in self._processes:
            if one.stdin is not None:
                one.stdin.close()
        _wait(self._processes)
        for one in self._processes:
            one.kill()
            one.wait()


def _wait(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for one in processes:
        with suppress(subprocess.TimeoutExpired):
            one.wait(_GRACE)
