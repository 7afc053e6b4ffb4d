"""Whether the hub answers, and a context without network, in which a download fails at once."""

from __future__ import annotations

import os
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock
from urllib.error import HTTPError

from huggingface_hub import constants as hub

__all__ = ["hub_fails", "offline_by", "without_network"]

_NOWHERE = "http://127.0.0.1:9"
"""A proxy address at which nothing listens."""
_TRUE = ("1", "ON", "TRUE", "YES")
"""Values of a variable that the hub's client takes for true."""


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
        try:
            yield
        finally:
            _forget_proxies()


def _forget_proxies() -> None:
    """Close the hub's client if there is one: it keeps the proxies that it began with."""
    utils = sys.modules.get("huggingface_hub.utils")
    for name in ("close_session", "reset_sessions"):  # the second before huggingface_hub 1.0
        close = getattr(utils, name, None)
        if close is not None:
            close()


def offline_by() -> str | None:
    """Return the variable of the environment that keeps the hub's client offline, with its value.

    None where there is none; :func:`without_network` is none of them.
    """
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):  # the client reads both
        value = os.environ.get(name, "")
        if value.upper() in _TRUE:
            return f"{name}={value}"
    return None


def hub_fails(seconds: float = 3.0) -> str | None:
    """Return why the hub cannot be reached, None if it answers.

    The hub's client tries for more than a minute; looking up an address alone can take longer than a
    timeout of its request, so the request has a thread.
    """
    if hub.HF_HUB_OFFLINE:  # asked for, or within `without_network`
        return "offline"
    # an answer empties it; a thread that is still waiting leaves it as it is
    reasons = ["no answer"]

    def ask() -> None:
        """Leave the reason in ``reasons`` if the hub does not answer, else nothing."""
        try:
            request = urllib.request.Request(hub.ENDPOINT, method="HEAD")
            urllib.request.urlopen(request, timeout=seconds).close()
        except HTTPError as answer:
            answer.close()  # any answer shows that the hub is reachable
        except (OSError, ValueError) as error:
            reasons.append(str(getattr(error, "reason", error)))
            return
        reasons.clear()

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(seconds)
    if not reasons:
        return None
    return reasons[-1]
