"""The whole examination. Each step has its own process, so that a crash or hang ends no other step."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence

import attrs

from lw2g.api.examined_steps import STEPS
from lw2g.api.finding import Finding, note, problem
from lw2g.api.machine import machine_findings, package_findings

__all__ = ["examine", "isolated", "main"]

_LIMIT = 120.0
_COMMAND = (sys.executable, "-P", "-c", "from lw2g.api.examination import main; main()")
_REMEDY = "mend what is wrong above, or reinstall torch and torchvision of one release"
_WHEN_LATE = "run it again when the machine has less to do"


def examine(*, quick: bool = False) -> Iterator[Finding]:
    """Yield findings as they arrive; this process does not import torch.

    Args:
        quick: Whether to look at machine, packages, torch and plugins alone.
    """
    yield from machine_findings()
    yield from package_findings()
    if quick:
        yield from isolated("at a glance")
        return
    for step in STEPS:
        if step == "at a glance":
            continue
        findings = list(isolated(step))
        yield from findings
        if step == "libraries" and any(finding.status == "problem" for finding in findings):
            yield note("plugins", "devices, plugins and runs were not examined", "repair the libraries first")
            return


def isolated(step: str, *, command: Sequence[str] = _COMMAND, limit: float = _LIMIT) -> Iterator[Finding]:
    """Run a step in its own process and yield its findings, and a problem if the process failed.

    Args:
        step: A key of :data:`STEPS`.
        command: The command of the process; the step is appended.
        limit: Time limit in seconds.
    """
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "HF_HUB_OFFLINE": "1"}
    try:
        done = subprocess.run(
            [*command, step], capture_output=True, env=environment, timeout=limit, check=False
        )
        written = done.stdout
        end = _end(done.returncode, done.stderr)
        remedy = _REMEDY
    except subprocess.TimeoutExpired as late:
        written = late.stdout or b""
        end = f"gave no answer for {limit:g} s"
        remedy = f"{_WHEN_LATE}; if it hangs again, {_REMEDY}"
    for line in written.decode().splitlines():
        yield Finding(**json.loads(line))
    if end:
        yield problem(step, f"this check {end}", remedy)


def _end(code: int, errors: bytes) -> str:
    """Return how a process ended, with its last line; empty if it succeeded."""
    if code == 0:
        return ""
    how = f"exit code {code}"
    if code < 0:
        how = signal.Signals(-code).name
    lines = errors.decode(errors="replace").strip().splitlines()
    return f"ended its process ({': '.join([how, *lines[-1:]])})"


def main() -> None:
    """Run the step named on the command line, and write its findings as JSON lines."""
    # stdout carries the findings alone; all other output goes to stderr
    with os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1) as channel:
        os.dup2(2, 1)
        for finding in STEPS[sys.argv[1]]():
            channel.write(json.dumps(attrs.asdict(finding)) + "\n")
