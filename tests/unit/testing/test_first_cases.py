"""The order of tests, and the option for the oldest dependencies, which leaves out cases and no test."""

from __future__ import annotations

from types import SimpleNamespace

import pytest


def named(nodeid: str, mark: pytest.Mark | None = None) -> SimpleNamespace:
    """Return what stands for a test."""
    return SimpleNamespace(nodeid=nodeid, get_closest_marker={"slow": mark}.get)


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
        items = [named(name) for name in names]
        all_items = list(items)
        config = SimpleNamespace(getoption=lambda _, asked=asked: asked, hook=hook)
        conftest.pytest_collection_modifyitems(config, items)
        assert [item.nodeid for item in left_out] == expected
        assert items == [item for item in all_items if item not in left_out]


def test_what_tells_its_seconds_begins_first(pytestconfig: pytest.Config) -> None:
    """The longest before the others; all others stay in their order, as fixtures that they share ask for."""
    conftest = pytestconfig.pluginmanager.get_plugin(str(pytestconfig.rootpath / "tests" / "conftest.py"))
    slow = pytest.mark.slow
    marks = [None, slow.mark, slow(seconds=9).mark, None, slow(seconds=60).mark, slow(seconds=9).mark]
    items = [named(str(number), mark) for number, mark in enumerate(marks)]
    conftest.pytest_collection_modifyitems(SimpleNamespace(getoption=lambda _: False), items)
    assert "".join(item.nodeid for item in items) == "425013"
