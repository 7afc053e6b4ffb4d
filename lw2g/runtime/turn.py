"""A lock that lets one thread compute at a time, and that a copy of its owner has anew."""

from __future__ import annotations

from threading import RLock

__all__ = ["Turn"]


class Turn:
    """Lets one thread compute at a time; a copy of its model has a turn of its own."""

    def __init__(self) -> None:
        self._lock = RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def __reduce__(self) -> tuple[type[Turn], tuple[()]]:
        return Turn, ()
