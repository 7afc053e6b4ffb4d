"""A context without network, in which a download fails at once."""

from __future__ import annotations

import os
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from huggingface_hub import constants as hub

__all__ = ["without_network"]

_NOWHERE = "http://127.0.0.1:9"
"""A proxy address at which nothing listens."""


@contextmanager
def without_network() -> Iterator[None]:
    """Let the hub's client use only its cache within the context; other downloads raise OSError.

    Clients that ignore the proxy variables of the environment are not stopped.
    """
    names = [f"{scheme}_proxy" for scheme in ("http", "https", "ftp", "all")]
    proxies = dict.fromkeys([*names, *map(str.upper, names)], _NOWHERE) | {"no_proxy": "", "NO_PROXY": ""}
    with (
        mock.patch.object(hub, "HF_HUB_OFFLINE", True),  # else it would try again and again
        mock.patch.dict(os.environ, proxies),
        mock.patch.object(urllib.request, "_opener", None),  # urlopen's own keeps the proxies it began with
    ):
        yield
