"""The process in which steps run that import compiled libraries: a crash or a hang ends one step, not all.

The worker writes one JSON line per finding and one per finished step. What libraries print goes to stderr.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any

import attrs

from lw2g.doctor.finding import Finding, ok, problem

__all__ = ["STEPS", "isolated", "main", "performed"]

_LIMIT = 120.0
_COMMAND = (sys.executable, "-P", "-c", "from lw2g.doctor.worker import main; main()")


def _libraries() -> Iterator[Finding]:
    from lw2g.doctor.libraries import library_findings

    return library_findings()


def _plugins() -> Iterator[Finding]:
    from lw2g.doctor.plugins import plugin_findings

    return plugin_findings()


def _devices() -> Iterator[Finding]:
    from lw2g.doctor.devices import device_findings

    return device_findings()


def _precision() -> Iterator[Finding]:
    from lw2g.doctor.devices import precision_findings

    return precision_findings()


def _weights() -> Iterator[Finding]:
    from lw2g.doctor.supplies import backbone_findings

    return backbone_findings()


def _hub() -> Iterator[Finding]:
    from lw2g.doctor.supplies import hub_findings

    return hub_findings()


def _hub_not_asked() -> Iterator[Finding]:
    yield ok("weights", "the hub was not asked; --network asks it")


def _data() -> Iterator[Finding]:
    from lw2g.doctor.supplies import benchmark_findings

    return benchmark_findings()


def _smoke() -> Iterator[Finding]:
    from lw2g.doctor.smoke import smoke_findings

    return smoke_findings()


STEPS: Mapping[str, Callable[[], Iterable[Finding]]] = {
    "libraries": _libraries,
    "devices": _devices,
    "precision": _precision,
    "plugins": _plugins,
    "weights": _weights,
    "hub": _hub,
    "hub not asked": _hub_not_asked,
    "data": _data,
    "smoke run": _smoke,
}
"""What a worker can do, in order."""


def isolated(
    steps: Sequence[str], *, command: Sequence[str] = _COMMAND, limit: float = _LIMIT
) -> Iterator[Finding]:
    """Run steps in a worker and yield their findings; where a step ends it, a new one does the rest.

    Args:
        steps: Keys of :data:`STEPS`.
        command: What starts a worker; the steps are appended.
        limit: Seconds without any answer after which a worker is given up.
    """
    remaining = list(steps)
    while remaining:
        with _worker([*command, *remaining]) as (process, lines, errors):
            end = ""
            while remaining and not end:
                try:
                    line = lines.get(timeout=limit)
                except queue.Empty:
                    end = f"gave no answer for {limit:g} s"
                    continue
                if line is None:
                    end = f"ended its process ({_how(process.wait(), errors)})"
                elif "done" in (message := json.loads(line)):
                    remaining.remove(message["done"])
                else:
                    yield Finding(**message)
        if remaining:
            step = remaining.pop(0)
            remedy = "mend what is wrong above, or reinstall torch and torchvision of one release"
            yield problem(step, f"this check {end}", remedy)


@contextmanager
def _worker(
    command: Sequence[str],
) -> Iterator[tuple[subprocess.Popen[str], queue.Queue[str | None], IO[bytes]]]:
    """Start a worker; give the process, the lines it writes (None at their end), and its stderr."""
    # The worker's own search path is that of this process, whatever started it. The hub is off limits.
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "HF_HUB_OFFLINE": "1"}
    lines: queue.Queue[str | None] = queue.Queue()
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, env=environment, text=True, encoding="utf-8"
        )

        def read() -> None:
            for line in process.stdout or ():
                lines.put(line)
            lines.put(None)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        try:
            yield process, lines, errors
        finally:
            process.kill()
            process.wait()
            reader.join()
            if process.stdout is not None:
                process.stdout.close()


def _how(code: int, errors: IO[bytes]) -> str:
    """Return how a process ended: its signal or exit code, and the last thing it said."""
    how = f"exit code {code}"
    if code < 0:
        how = signal.Signals(-code).name
    errors.seek(0)
    said = errors.read().decode(errors="replace").strip().splitlines()
    return f"{how}: {said[-1]}" if said else how


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the steps that the arguments name, and write their findings as JSON lines."""
    steps = sys.argv[1:] if arguments is None else arguments
    # Keep stdout for the findings alone: whatever else is printed goes to stderr.
    with os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1) as channel:
        os.dup2(2, 1)
        for step in steps:
            for finding in performed(step, STEPS[step]):
                _write(channel, attrs.asdict(finding))
            _write(channel, {"done": step})


def performed(step: str, action: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """Yield the findings of a step; an error in it is one, too."""
    try:
        yield from action()
    # A broken library may raise anything anywhere, and the other checks go on. The error is told.
    except Exception as error:
        text = f"this check could not end: {type(error).__name__}: {error}"
        yield problem(step, text, "mend what is wrong above; if nothing is, report this as a bug")


def _write(channel: IO[str], message: dict[str, Any]) -> None:
    channel.write(json.dumps(message) + "\n")
    channel.flush()
