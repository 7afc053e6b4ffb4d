"""On a system without POSIX one line says where lw2g runs."""

from __future__ import annotations

import subprocess
import sys

import pytest

WINDOWS = """
import click, signal, sys
sys.platform = "win32"
for name in ("fcntl", "resource"):
    sys.modules[name] = None
for name in ("SIGHUP", "SIGUSR1", "SIGXCPU"):
    delattr(signal, name)
"""


@pytest.mark.parametrize(
    "code",
    [
        "from lw2g.cli.main import main; main(['--help'])",
        """
import lw2g
try:
    lw2g.load
except ImportError as error:
    print(f"error: {error}", file=sys.stderr)
    sys.exit(2)
""",
    ],
    ids=["command", "import"],
)
def test_windows_is_told_where_lw2g_runs(code: str) -> None:
    """Neither a command nor a function fails for a module that Windows lacks: one line names the way."""
    done = subprocess.run([sys.executable, "-c", WINDOWS + code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert (
        line == "error: lw2g runs on Linux, macOS and WSL; on Windows: wsl --install, then install lw2g in it"
    )
    assert done.stdout == ""
