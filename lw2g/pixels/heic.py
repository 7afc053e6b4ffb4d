"""HEIC, the format of phones: read where the package ``pillow-heif`` is installed (extra ``heic``)."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

__all__ = ["HEIC_ENDINGS", "reads_heic", "register_heic", "way_out"]

HEIC_ENDINGS = frozenset({".heic", ".heif"})
"""How files of this format end."""


def reads_heic() -> bool:
    """Return whether HEIC can be read here; nothing is imported for it."""
    return _is_installed()


@cache
def _is_installed() -> bool:
    return find_spec("pillow_heif") is not None


@cache
def register_heic() -> None:
    """Let Pillow open HEIC, in this process; the format is called HEIF there."""
    from pillow_heif import register_heif_opener

    register_heif_opener()


def way_out(formats: list[str]) -> str:
    """Return what to do about pictures of some formats that are not read, such as ``["AVIF", "HEIC"]``."""
    convert = f"convert {' and '.join(formats)} to JPEG or PNG"
    if {"HEIC", "HEIF"} & set(formats):
        return f"{convert}, or for HEIC pip install pillow-heif"
    return convert
