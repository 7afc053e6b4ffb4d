"""``python -m lw2g.sweep.tether PID ...``: lw2g, which is asked to stop when the process above it dies.

A worker of a cluster that is killed leaves the run that it has started behind: it would go on beside the one
that is begun for it elsewhere, and keep that one waiting. On Linux the system tells it.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys

_PR_SET_PDEATHSIG = 1


def _main() -> None:
    """Be tethered to the process of the number given first, and do what the other arguments say."""
    parent = int(sys.argv.pop(1))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it died before anybody would have told
        raise SystemExit(-signal.SIGTERM)
    for number in (signal.SIGUSR1, signal.SIGUSR2):  # schedulers warn whole groups; it is told in another way
        signal.signal(number, signal.SIG_IGN)
    runpy.run_module("lw2g", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
