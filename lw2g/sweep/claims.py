"""Who sees to which cell, where several drivers share a sweep: on one machine or on many.

The lock of a cell's run decides who writes it. But a job takes seconds to begin, or waits in a queue for
hours; so that nobody begins a second one meanwhile, a driver claims a cell before it submits it. What a
driver has claimed is free again once it is dead:
it holds the lock of a directory of its own, with a heartbeat.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from lw2g.training.files.lock import in_turn, one_writer, writer_of

__all__ = ["Claims"]

_CLAIMS = "claims.json"


class Claims:
    """The claims on the cells of a sweep.

    Args:
        path: The sweep's directory.
    """

    def __init__(self, path: Path) -> None:
        self._sweep, self._drivers = path, path / ".drivers"
        self._me = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"

    @contextmanager
    def driving(self) -> Iterator[None]:
        """Be one of the sweep's drivers within the block."""
        mine = self._drivers / self._me
        mine.mkdir(parents=True)
        try:
            with one_writer(mine):
                try:
                    yield
                finally:
                    self._renew(lambda held: {name: who for name, who in held.items() if who != self._me})
        finally:
            shutil.rmtree(mine, ignore_errors=True)

    def take(self, names: Sequence[str]) -> set[str]:
        """Claim cells; return those that no other driver had claimed before."""
        return self._renew(lambda held: dict.fromkeys(names, self._me) | held, names)

    def release(self, names: Sequence[str]) -> None:
        """Give claims back."""
        self._renew(lambda held: {name: who for name, who in held.items() if name not in names})

    def held(self) -> dict[str, str]:
        """Return the claims of drivers that are alive."""
        try:
            told = json.loads((self._drivers / _CLAIMS).read_bytes())
        except (FileNotFoundError, ValueError):
            return {}
        alive = {who for who in set(told.values()) if writer_of(self._drivers / who) is not None}
        return {name: who for name, who in told.items() if who in alive}

    def of_others(self) -> set[str]:
        """Return the cells that other drivers see to."""
        return {name for name, who in self.held().items() if who != self._me}

    def _renew(
        self, change: Callable[[dict[str, str]], dict[str, str]], names: Sequence[str] = ()
    ) -> set[str]:
        """Change the claims while nobody else does; return which of the names are claimed by this driver."""
        with in_turn(self._sweep):
            found = change(self.held())
            new = self._drivers / f".{_CLAIMS}.lw2g-part"
            new.write_text(json.dumps(found), encoding="utf-8")
            new.replace(self._drivers / _CLAIMS)  # a reader sees a whole file
        return {name for name in names if found[name] == self._me}
