"""The id that a service gave a run, kept in the run's directory so that a resumed run continues it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

__all__ = ["kept_id"]


def kept_id(file: Path, new: Callable[[], str]) -> str:
    """Return the id in a file, or a new one, which is then kept there."""
    if file.exists():
        return file.read_text(encoding="utf-8").strip()
    run_id = new()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(run_id + "\n", encoding="utf-8")
    return run_id
