"""Where the package is not installed (as in lw2g's own test environments), its tests are skipped, aloud."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import pytest


class NotInstalled(pytest.Module):
    """A test module of a package that is not there; importing it would be an error."""

    def collect(self) -> NoReturn:
        pytest.skip("needs tests/example_plugin installed, which brings peft; run `tox -e example`")


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    if find_spec("lw2g_peft_adapters") is None:
        return NotInstalled.from_parent(parent, path=module_path)
    return None
