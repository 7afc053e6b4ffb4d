"""Findings: what the doctor saw, whether it matters, and what to do."""

from __future__ import annotations

from typing import Literal

import attrs

__all__ = ["Finding", "Status", "note", "ok", "problem", "split_remedy"]

Status = Literal["ok", "note", "problem"]


@attrs.frozen(kw_only=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        area: Where it belongs, such as ``"devices"``.
        status: ``"ok"``; ``"note"``: something is not there or could be better, and runs work without it;
            ``"problem"``: something that should work does not.
        text: What was seen, one line.
        remedy: What to do, one line; empty where all is well.

    Raises:
        ValueError: What is not ok has no remedy.
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
    """Return a finding that a user should know."""
    return Finding(area=area, status="note", text=_one_line(text), remedy=_one_line(remedy))


def problem(area: str, text: str, remedy: str) -> Finding:
    """Return a finding that needs mending."""
    return Finding(area=area, status="problem", text=_one_line(text), remedy=_one_line(remedy))


def split_remedy(message: str, otherwise: str) -> tuple[str, str]:
    """Split an error message of lw2g into what is wrong and what to do, which stands after a semicolon.

    >>> split_remedy("no data; get some", "look")
    ('no data', 'get some')
    >>> split_remedy("no data", "look")
    ('no data', 'look')
    """
    what, _, remedy = message.partition("; ")
    return what, remedy or otherwise


def _one_line(text: str) -> str:
    return " ".join(text.split())
