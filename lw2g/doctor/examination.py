"""The whole examination, in the order in which its parts depend on each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs

from lw2g.doctor.finding import Finding
from lw2g.doctor.libraries import CANNOT_IMPORT
from lw2g.doctor.machine import machine_findings, run_directory_findings
from lw2g.doctor.packages import package_findings
from lw2g.doctor.worker import STEPS, isolated

__all__ = ["examine", "traced"]


def examine(*, network: bool = False) -> Iterator[Finding]:
    """Yield findings as they are made; nothing here imports torch in this process.

    Args:
        network: Whether the hub may be asked whether it answers.
    """
    yield from machine_findings()
    yield from run_directory_findings()
    yield from package_findings()
    left_out = "hub not asked" if network else "hub"
    yield from traced(isolated([step for step in STEPS if step != left_out]))


def traced(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield the findings; what fails with the error of a broken library is to be mended there."""
    causes: dict[str, str] = {}
    for finding in findings:
        library, broken, error = finding.text.partition(CANNOT_IMPORT)
        cause = next((name for message, name in causes.items() if message in finding.text), None)
        if cause is not None and finding.status != "ok":
            yield attrs.evolve(finding, remedy=f"mend {cause} first")
            continue
        if broken and finding.area == "libraries":
            causes[error] = library
        yield finding
