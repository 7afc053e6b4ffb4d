"""What `lw2g run --dry-run` says of a run, beside what the run takes: seconds, memory, disk.

Both are told in seconds of the processor, so that what else the machine does counts for little. Takes the
arguments of `lw2g run`; the embedded default without any.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

time.perf_counter = time.process_time  # before any clock is read

import torch  # noqa: E402

from lw2g.cli.run_command import run as command  # noqa: E402
from lw2g.cli.shared_options import ExperimentOptions  # noqa: E402
from lw2g.lifecycle.estimate import estimate  # noqa: E402
from lw2g.lifecycle.runner import start  # noqa: E402
from lw2g.registry.catalogue import load_catalogue  # noqa: E402
from lw2g.runtime.peak import PeakMemory  # noqa: E402

_MIB = 2**20

if __name__ == "__main__":
    words = sys.argv[1:] or ["--baseline", "hide-prompt", "--policy", "min"]
    catalogue = load_catalogue()
    values = command.make_context("run", words).params
    resolved = ExperimentOptions.of(values).resolve(catalogue).resolved
    cost = estimate(resolved.config, catalogue)
    with tempfile.TemporaryDirectory() as folder:
        peak, began = PeakMemory(torch.device("cpu")), time.perf_counter()
        start(resolved, catalogue, Path(folder) / "run")
        taken = time.perf_counter() - began
        disk = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
    rows = [
        ("whole run [s]", cost.seconds, taken),
        ("memory [MiB]", cost.memory / _MIB, peak.machine / _MIB),
        ("disk [MiB]", cost.disk / _MIB, disk / _MIB),
    ]
    for name, told, true in rows:
        print(f"{name:14} {told:9.1f}   {true:9.1f}")
