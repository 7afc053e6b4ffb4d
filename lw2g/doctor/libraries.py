"""Importing the compiled libraries, each on its own, so that a broken one is named."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence

from lw2g.doctor.finding import Finding, ok, problem

__all__ = ["CANNOT_IMPORT", "COMPILED", "library_findings"]

COMPILED = ("numpy", "torch", "torchvision", "timm", "lightning_fabric", "sklearn", "safetensors")
"""Modules with compiled parts, or that import some; each after those it needs."""

CANNOT_IMPORT = " cannot be imported: "
"""Stands between a library and the error in the text of a finding."""

_DISTRIBUTIONS = {"sklearn": "scikit-learn", "lightning_fabric": "lightning-fabric"}
_PAIR = ("torch", "torchvision")


def library_findings(names: Sequence[str] = COMPILED) -> Iterator[Finding]:
    """Import libraries one after the other and yield which ones fail, with what to do."""
    fine = []
    for name in names:
        # where an import ends the process, this is the last that was said
        print(f"importing {name}", file=sys.stderr, flush=True)
        try:
            importlib.import_module(name)
        # A build that does not fit fails in ways of its own (RuntimeError: operator torchvision::nms does not
        # exist; OSError: undefined symbol). Each of them is told, and the next library is tried.
        except Exception as error:
            text = f"{name}{CANNOT_IMPORT}{type(error).__name__}: {error}"
            yield problem("libraries", text, _remedy(name))
        else:
            fine.append(name)
    if fine:
        yield ok("libraries", f"{len(fine)} of {len(names)} can be imported: {', '.join(fine)}")


def _remedy(name: str) -> str:
    if name in _PAIR:
        return "pip install --force-reinstall torch torchvision: builds of one release, both from one index"
    return f"pip install --force-reinstall {_DISTRIBUTIONS.get(name, name)}"
