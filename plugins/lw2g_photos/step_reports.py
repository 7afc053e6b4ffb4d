"""The reports of start, learn, unlearn and test: dicts that a prompt shows in one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lw2g.errors import counted

__all__ = ["StepReport", "learned", "tested", "unlearned"]


class StepReport(dict[str, Any]):
    """A report; ``dict(report)`` shows all of it.

    Attributes:
        line: What a prompt shows.
    """

    def __init__(self, report: Mapping[str, Any], line: str) -> None:
        super().__init__(report)
        self.line = line

    def __repr__(self) -> str:
        return f"<report {self.line}>"


def learned(report: Mapping[str, Any]) -> StepReport:
    """Return the report of start or learn."""
    images = sum(one["images"] for one in report["classes"])
    line = f"{report['out']!r}: {counted(images, 'image')} of {counted(len(report['classes']), 'class')}"
    if report["checked"]:
        line += f", {_accuracy(report, report['checked'])}"
    return StepReport(report, line)


def unlearned(report: Mapping[str, Any]) -> StepReport:
    """Return the report of unlearn."""
    names = ", ".join(map(repr, report["forgotten"]))
    return StepReport(
        report, f"{report['out']!r}: without {names}; {counted(len(report['classes']), 'class')}"
    )


def tested(report: Mapping[str, Any]) -> StepReport:
    """Return the report of test."""
    return StepReport(report, f"of a test: {_accuracy(report, report['images'])}")


def _accuracy(report: Mapping[str, Any], images: int) -> str:
    low, high = report["interval"]
    return f"accuracy {report['accuracy']:.1f} % of {counted(images, 'image')} ({low:.1f} to {high:.1f})"
