"""docs/reference.md is what the docstrings say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "write_reference.py"


@pytest.mark.skipif(not SCRIPT.exists(), reason="needs the source tree")
def test_the_reference_is_up_to_date():
    """A changed docstring or signature changes the page: run scripts/write_reference.py."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--check"], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
