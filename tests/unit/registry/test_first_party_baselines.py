"""The baselines that lw2g brings: what every record and every class keeps to, whichever there are."""

from __future__ import annotations

import attrs
import pytest
from torch import nn

from lw2g.interfaces.component import Lazy
from lw2g.registry.catalogue import load_catalogue

NAMES = sorted(load_catalogue().names("baseline"))

EMBEDDED = {"digits", "glyphs", "folder"}
"""Families of benchmarks that ship with lw2g, or that a user brings."""


@pytest.mark.parametrize("name", NAMES)
def test_a_record_agrees_with_itself(name):
    """A fixed method infers no task, a joint one is a control, and what trains has quick values."""
    catalogue = load_catalogue()
    method = catalogue.get("baseline", name)
    if method.growth == "fixed":
        assert method.retrieval is None
    if method.retrieval is not None:
        assert method.retrieval in catalogue.names("retrieval")
    if method.joint:
        assert method.control
        assert method.growth == "fixed"
    trains = any(field.name.endswith("epochs") for field in attrs.fields(method.config))
    assert set(method.tuned) == (EMBEDDED if trains else set())


@pytest.mark.parametrize("name", NAMES)
def test_a_method_reads_in_few_classes(name):
    """Above torch's module stand three classes of ours at most: the method, one base, the contract."""
    build = load_catalogue().get("baseline", name).build
    assert isinstance(build, Lazy)
    method = build.load()
    assert issubclass(method, nn.Module)  # the record names the class, not a function that chooses one
    ours = [kind.__name__ for kind in method.__mro__ if kind.__module__.startswith("lw2g")]
    assert len(ours) <= 3, ours
