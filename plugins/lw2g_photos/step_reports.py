"""The reports of start, learn, unlearn and test: dicts that a prompt shows in one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from lw2g.api.recorded import leading_check, words_of_change
from lw2g.errors import counted, nearest
from lw2g_photos.step_words import words_of_test

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

    def __missing__(self, name: str) -> NoReturn:
        """Refuse a key that the report lacks, with the nearest or all of them."""
        told = nearest(str(name), self) or f"; it has {', '.join(self)}"
        raise KeyError(f"the report has no {name!r}{told}")


def learned(report: Mapping[str, Any], *, has_old_classes: bool) -> StepReport:
    """Return the report of start or learn, whose accuracy is the one that the command line tells.

    What was asked of images that were set apart stands under ``set_apart``.
    """
    images = sum(one["images"] for one in report["classes"])
    line = f"{report['out']!r}: {counted(images, 'image')} of {counted(len(report['classes']), 'class')}"
    check = leading_check(report, has_old_classes=has_old_classes)
    told: dict[str, Any] = {"accuracy": None, "interval": None, "checked": 0}
    set_apart = {name: report[name] for name in told}
    if check is not None:
        line += f", accuracy {check.in_short}"
        if not check.knows_one_class:
            told = {"accuracy": check.accuracy, "interval": check.interval, "checked": check.images}
    line += _head_changed(report)
    return StepReport({**report, **told, "set_apart": set_apart}, line)


def unlearned(report: Mapping[str, Any]) -> StepReport:
    """Return the report of unlearn."""
    names = ", ".join(map(repr, report["forgotten"]))
    line = f"{report['out']!r}: without {names}; {counted(len(report['classes']), 'class')}"
    return StepReport(report, line + _head_changed(report))


def _head_changed(report: Mapping[str, Any]) -> str:
    """Return what a line says of a head that is not the one before; empty where it is the same."""
    changed = words_of_change(report.get("choice", {}))
    return f"; {changed}" if changed else ""


def tested(report: Mapping[str, Any]) -> StepReport:
    """Return the report of test."""
    return StepReport(report, f"of a test: accuracy {words_of_test(report)}")
