"""What is installed while a process runs is found, and what is removed is gone."""

from __future__ import annotations

import shutil

from lw2g.registry.installed import entry_points
from strangers import install


def test_packages_are_those_of_now(tmp_path, monkeypatch):
    """Though files of all packages are read once for all questions in between."""
    monkeypatch.syspath_prepend(tmp_path)
    before = entry_points(group="lw2g")
    assert "late" not in before.names
    assert entry_points(group="lw2g") is before
    install(tmp_path, "late-package", "late", "", "lw2g")
    assert "late" in entry_points(group="lw2g").names
    shutil.rmtree(tmp_path / "late_package-1.0.dist-info")
    assert "late" not in entry_points(group="lw2g").names
