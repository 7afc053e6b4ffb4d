"""Findings of the doctor, each with a status and a remedy."""

from __future__ import annotations

from typing import Literal

import attrs

__all__ = ["Finding", "Status", "note", "ok", "problem"]

Status = Literal["ok", "note", "problem"]


@attrs.frozen(kw_only=True)
class Finding:
    """One examined thing.

    Attributes:
        area: Its area, such as ``"devices"``.
        status: ``"ok"``; ``"note"``: something is missing or could be better, but runs work;
            ``"problem"``: something that should work does not.
        text: The observation, one line.
        remedy: What to do, one line; empty if all is well.

    Raises:
        ValueError: A note or problem has no remedy.
    """

    area: str
    status: Status
    text: str
    remedy: str = ""

    def __attrs_post_init__(self) -> None:
        if self.status != "ok" and not self.remedy:
            raise ValueError(f"expected a remedy for {self.text!r} but got none")


def ok(area: str, text: str) -> Finding:
    """Return a finding that all is well."""
    return Finding(area=area, status="ok", text=_one_line(text))


def note(area: str, text: str, remedy: str) -> Finding:
    """Return a finding that the user should know."""
    return Finding(area=area, status="note", text=_one_line(text), remedy=_one_line(remedy))


def problem(area: str, text: str, remedy: str) -> Finding:
    """Return a finding that needs repair."""
    return Finding(area=area, status="problem", text=_one_line(text), remedy=_one_line(remedy))


def _one_line(text: str) -> str:
    return " ".join(text.split())
