"""The words for images that cannot be used: the same of a file whichever command or decoder comes upon it."""

from __future__ import annotations

from collections.abc import Mapping

from lw2g.errors import DataError, counted

__all__ = ["damaged", "left_out", "refusal"]

_NAMED = 20
"""Files that are named after the first."""


def damaged() -> DataError:
    """Return the error of an image file that is cut off or broken.

    What a decoder says of it is left to the traceback: two of them word one damage in two ways.
    """
    return DataError("it is damaged and cannot be decoded", "replace it")


def refusal(bad: Mapping[str, DataError], total: int | None = None) -> DataError:
    """Return one error for all images that cannot be used, at least one.

    Args:
        bad: By name what is wrong with each.
        total: Images there are, these included; None where that says nothing.
    """
    if total is None and len(bad) == 1:
        return next(iter(bad.values()))
    count = len(bad) if total is None else f"{len(bad)} of {total}"
    return DataError(f"{count} images cannot be used, {_named(bad)}", "replace or remove them")


def left_out(bad: Mapping[str, DataError], total: int) -> str:
    """Return the note about images that are left out because they cannot be used, at least one.

    Args:
        bad: By name what is wrong with each.
        total: Images there are, these included.
    """
    return f"left out {len(bad)} of {counted(total, 'image')}, {_named(bad)}"


def _named(bad: Mapping[str, DataError]) -> str:
    """Return what is wrong with the first image, and the names of the others."""
    first, *_ = bad.values()
    others = [repr(name) for name in list(bad)[1:]]
    named = ", ".join(others[:_NAMED])
    if len(others) > _NAMED:
        named += f" and {len(others) - _NAMED} more"
    return f"first {first.what}" + (f"; also {named}" if named else "")
