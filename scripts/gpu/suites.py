"""The contract kit with its runs on the device, and the unit and contract tests beside it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from gpu.lab import Lab, Measurement

ROOT = Path(__file__).resolve().parents[2]
KEPT = 10.0
"""Seconds that are left when a suite is stopped."""


def measurements(lab: Lab) -> Iterator[tuple[str, Measurement]]:
    """Yield the contract of what trains, run on the device, then the tests by folder."""
    for name in lab.baselines[-1:] if lab.toy else lab.baselines:
        yield f"contract of {name}", partial(_contract, lab, "baseline", name)
    if not lab.toy:
        for name in lab.catalogue.names("retrieval"):
            yield f"contract of {name}", partial(_contract, lab, "retrieval", name)
        folders = sorted(path for path in (ROOT / "tests" / "unit").iterdir() if any(path.glob("test_*.py")))
        for folder in (*folders, ROOT / "tests" / "contract"):
            yield str(folder.relative_to(ROOT)), partial(_pytest, lab, [folder])
        yield "tests/unit", partial(_pytest, lab, sorted((ROOT / "tests" / "unit").glob("test_*.py")))


def _contract(lab: Lab, kind: str, name: str) -> dict[str, Any]:
    done = _python(lab, "lw2g", "check", name, "--kind", kind, "--device", str(lab.device), "--json")
    if done is None:
        return {"unfinished": True}
    try:
        results = json.loads(done.stdout)
    except json.JSONDecodeError:
        raise RuntimeError(_last_line(done)) from None
    failed = {one["check"]: one["message"] for one in results if one["status"] == "failed"}
    return {"passed": sum(one["status"] == "passed" for one in results), "failed": failed}


def _pytest(lab: Lab, paths: Sequence[Path]) -> dict[str, Any]:
    done = _python(lab, "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider", *map(str, paths))
    if done is None:
        return {"unfinished": True}
    lines = done.stdout.splitlines()
    failed = {line.split(" - ")[0]: line for line in lines if line.startswith(("FAILED", "ERROR"))}
    if done.returncode and not failed:
        raise RuntimeError(f"pytest ended with {done.returncode}: {_last_line(done)}")
    return {"summary": lines[-1], "failed": failed}


def _python(lab: Lab, *module: str) -> subprocess.CompletedProcess[str] | None:
    """Run a module in a process of its own (kernels are chosen once for each); None if the time is up."""
    left = max(lab.seconds_left() - KEPT, 1.0)
    command = [sys.executable, "-m", *module]
    try:
        return subprocess.run(command, cwd=ROOT, timeout=left, capture_output=True, text=True, check=False)
    except subprocess.TimeoutExpired:
        return None


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    return ((done.stderr or done.stdout).strip().splitlines() or ["without a word"])[-1]
