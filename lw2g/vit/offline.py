"""A block without network: what would be fetched is not there, and nobody waits for it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from huggingface_hub import constants as hub

__all__ = ["without_network"]


@contextmanager
def without_network() -> Iterator[None]:
    """Let no connection to another host be opened within the block; trying is an OSError."""

    def refuse(*arguments: Any, **options: Any) -> Any:
        raise socket.gaierror("the network is not to be used here")

    connect = socket.socket.connect

    def connect_here(self: socket.socket, address: Any) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6):
            refuse()
        connect(self, address)

    with (
        mock.patch.object(hub, "HF_HUB_OFFLINE", True),  # else it would try again and again
        mock.patch.object(socket, "getaddrinfo", refuse),
        mock.patch.object(socket.socket, "connect", connect_here),
    ):
        yield
