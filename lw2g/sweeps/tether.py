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
    if os.getppid() != parent:  # it died before prctl, and nobody will send the signal
        raise SystemExit(128 + signal.SIGTERM)  # as a shell reports a death by SIGTERM
    # a scheduler sends these to all processes of its job before its time is up; by default they kill. The
    # sweep has its own handlers, and asks its runs by SIGTERM to stop
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    runpy.run_module("lw2g", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
