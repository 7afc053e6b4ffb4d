"""What the doctor says with torch: libraries, devices, plugins, and a small run."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import attrs
import pytest
import torch

from lw2g.api import examined_steps as steps
from lw2g.interfaces.component import BackboneComponent, NoOptions, lazy
from lw2g.registry.catalogue import Catalogue, Registered, load_catalogue
from lw2g.registry.manager import Origin, Problem


def catalogue_of(*components):
    """Return a catalogue of these components, all of one plugin."""
    origin = Origin(plugin="p", distribution="a-dist", version="1")
    entries = [Registered(component=component, origin=origin) for component in components]
    return Catalogue(entries={entry.key: entry for entry in entries})


def backbone(name, build, **more):
    """Return a backbone's record; ``build`` takes no arguments."""
    return BackboneComponent(name=name, config=NoOptions, summary="s", build=lambda *_: build(), **more)


def seen(findings):
    """Return status, text and remedy of each finding."""
    return [(finding.status, finding.text, finding.remedy) for finding in findings]


def test_a_library_that_fails_in_its_own_way_is_named(tmp_path, monkeypatch, capsys):
    """Any exception of an import is a problem of that library, once, and the others are tried."""
    nms = "operator torchvision::nms does not exist"
    (tmp_path / "torchvision.py").write_text(f"raise RuntimeError({nms!r})")
    (tmp_path / "timm.py").write_text("import torchvision")
    for name in ("torchvision", "timm"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    remedy = "pip install --force-reinstall torch torchvision, builds of one release from one index"
    assert seen(steps.libraries(["json", "torchvision", "timm", "csv"])) == [
        ("problem", f"torchvision cannot be imported: RuntimeError: {nms}", remedy),
        ("ok", "can be imported: json, csv", ""),
    ]
    assert capsys.readouterr().err.splitlines()[1] == "importing torchvision"


def test_a_driver_without_a_gpu_for_torch_is_a_problem(monkeypatch):
    """A CPU build of torch beside a driver is told; without a driver nothing is missing."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for there in (True, False):
        monkeypatch.setattr(steps.Path, "exists", lambda path, there=there: there)
        complaints = [finding.text for finding in steps.devices() if finding.status == "problem"]
        assert ["an NVIDIA driver is there" in text for text in complaints] == [True] * there


@pytest.mark.parametrize(("free", "status"), [(70, "ok"), (5, "note")])
def test_gpus_are_listed_with_their_memory(monkeypatch, free, status):
    """Each GPU has a line; one that somebody fills is a note."""
    about = SimpleNamespace(name="A GPU", major=9, minor=0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: about)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda index: (free * 2**30, 80 * 2**30))
    first, *_ = steps.devices()
    assert first.status == status
    assert f"cuda:0: A GPU, 80 GiB memory, {free} GiB of it free, compute capability 9.0" in first.text


def test_plugin_problems_and_disabled_plugins_are_told():
    """Every problem of the catalogue is one of the doctor's, with its remedy."""
    trouble = Problem(
        plugin="x", distribution="x-dist", version="2", what="cannot be imported", remedy="fix it"
    )
    catalogue = attrs.evolve(
        catalogue_of(backbone("b", print)), problems=(trouble,), disabled=("left", "right")
    )
    assert seen(steps.plugins(catalogue)) == [
        ("ok", "1 components of 1 plugins, not of lw2g itself: plugin 'p' (a-dist 1)", ""),
        ("note", "LW2G_DISABLE_PLUGINS leaves out left, right", "unset LW2G_DISABLE_PLUGINS to use them"),
        ("problem", "plugin 'x' (x-dist 2) cannot be imported", "fix it"),
    ]


def test_code_that_a_record_only_names_is_imported():
    """A listing does not import it, so the doctor says where it is missing."""
    there, missing = (
        attrs.evolve(backbone("b", print), build=lazy(f"lw2g.errors:{name}"))
        for name in ("DataError", "NoError")
    )
    assert [finding.status for finding in steps.plugins(catalogue_of(there))] == ["ok"]
    *_, last = steps.plugins(catalogue_of(missing))
    assert last.status == "problem"
    assert "cannot build its backbone 'b'" in last.text
    assert "no attribute 'NoError'" in last.text


@pytest.mark.slow
def test_the_small_run_is_a_real_one():
    """Two tasks of the default experiment are learned and evaluated."""
    (found,) = steps.small_run()
    assert found.status == "ok"
    assert "2 tasks learned and evaluated" in found.text


def test_a_small_run_that_cannot_be_resolved_is_a_problem():
    """Without the default components the reason is told."""
    (found,) = steps.small_run(load_catalogue(entry_points=False))
    assert found.status == "problem"
    assert "the default experiment does not run" in found.text
