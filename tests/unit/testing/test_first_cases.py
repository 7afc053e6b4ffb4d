"""The option for the oldest dependencies leaves out cases, and no test."""

from __future__ import annotations

from types import SimpleNamespace

import pytest


def test_first_cases_leave_every_test_one_and_some_folders_all(pytestconfig: pytest.Config) -> None:
    """What is left out is told; without the option nothing is."""
    conftest = pytestconfig.pluginmanager.get_plugin(str(pytestconfig.rootpath / "tests" / "conftest.py"))
    left_out: list[SimpleNamespace] = []
    hook = SimpleNamespace(pytest_deselected=lambda items: left_out.extend(items))
    names = [
        f"tests/{name}"
        for name in (
            "unit/a.py::t[1]",
            "unit/a.py::t[2]",
            "unit/a.py::u",
            "unit/vit/b.py::t[1]",
            "unit/vit/b.py::t[2]",
        )
    ]
    for asked, expected in ((False, []), (True, [names[1]])):
        items = [SimpleNamespace(nodeid=name) for name in names]
        all_items = list(items)
        config = SimpleNamespace(getoption=lambda _, asked=asked: asked, hook=hook)
        conftest.pytest_collection_modifyitems(config, items)
        assert [item.nodeid for item in left_out] == expected
        assert items == [item for item in all_items if item not in left_out]
