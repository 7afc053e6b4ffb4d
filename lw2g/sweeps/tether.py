"""``python -m lw2g.sweeps.tether PID ...`` runs lw2g and stops it when its parent process dies.

The run of a killed cluster worker would otherwise go on, and keep the run that replaces it waiting. On Linux
the kernel sends the signal.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys

_PR_SET_PDEATHSIG = 1


def _main() -> None:
    """Tie this process to the parent with the first argument's id and run lw2g with the others."""
    parent = int(sys.argv.pop(1))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # the parent died before prctl
        raise SystemExit(-signal.SIGTERM)
    for number in (signal.SIGUSR1, signal.SIGUSR2):  # schedulers send these to whole groups; SIGTERM counts
        signal.signal(number, signal.SIG_IGN)
    runpy.run_module("lw2g", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
