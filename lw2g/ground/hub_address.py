"""Addresses of models on the hub: ``hf://OWNER/NAME``, and ``@REVISION`` behind it to pin one."""

from __future__ import annotations

import os
import re

from lw2g.errors import ConfigError, DataError, shown

__all__ = ["is_commit", "is_hub_address", "parsed_address", "require_local"]

_SCHEME = "hf://"
_NAME = r"[A-Za-z0-9][\w.-]*"
_ADDRESS = re.compile(rf"(?P<repo>{_NAME}/{_NAME})(@(?P<revision>[\w./-]+))?", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")


def is_hub_address(path: str | os.PathLike[str]) -> bool:
    """Return whether a text is the address of a model on the hub, and no path.

    >>> is_hub_address("hf://anna/birds"), is_hub_address("models/birds")
    (True, False)
    """
    # a Path has one of the two slashes left
    return str(path).startswith("hf:/")


def parsed_address(address: str | os.PathLike[str]) -> tuple[str, str | None]:
    """Return ``OWNER/NAME`` of an address, and its revision; None where it names none.

    >>> parsed_address("hf://anna/birds@v1")
    ('anna/birds', 'v1')

    Raises:
        ConfigError: It is no such address.
    """
    text = _written(address)
    match = _ADDRESS.fullmatch(text.removeprefix(_SCHEME))
    if match is None or ".." in text:
        raise ConfigError(
            f"{shown(text)} is no address of a model on the hub",
            "write hf://OWNER/NAME or hf://OWNER/NAME@REVISION",
        )
    return match["repo"], match["revision"]


def is_commit(revision: str | None) -> bool:
    """Return whether a revision is a commit, which stays what it is; a branch or a tag may move."""
    return revision is not None and _COMMIT.fullmatch(revision) is not None


def require_local(path: str | os.PathLike[str]) -> None:
    """Refuse the address of a model on the hub where a folder on this machine is needed.

    Raises:
        DataError: It is one.
    """
    if is_hub_address(path):
        address = _written(path)
        raise DataError(f"{address!r} is on the hub", f"copy it first: lw2g pull {address} MODEL")


def _written(address: str | os.PathLike[str]) -> str:
    """Return an address with both slashes, of which a Path has one left."""
    return _SCHEME + str(address).removeprefix("hf:").lstrip("/")
