"""What the doctor says with torch: libraries, devices, plugins, weights and data, and of the hub."""

from __future__ import annotations

import http.server
import sys
import threading
from types import SimpleNamespace

import attrs
import pytest
import torch

from lw2g.doctor import steps
from lw2g.errors import ConfigError, DataError
from lw2g.interfaces.component import BackboneComponent, BenchmarkComponent, lazy
from lw2g.interfaces.dataset import ByHand, DataSet
from lw2g.kit.tiny import TinyBenchmark, TinyBenchmarkConfig
from lw2g.registry.catalogue import Catalogue, Registered, load_catalogue
from lw2g.registry.manager import Origin, Problem


@attrs.frozen(kw_only=True)
class NoOptions:
    pass


def catalogue_of(*components):
    """Return a catalogue of these components, all of one plugin."""
    origin = Origin(plugin="p", distribution="a-dist", version="1")
    entries = [Registered(component=component, origin=origin) for component in components]
    return Catalogue(entries={entry.key: entry for entry in entries})


def backbone(name, build, **more):
    """Return a backbone's record; ``build`` takes no arguments."""
    return BackboneComponent(name=name, config=NoOptions, summary="s", build=lambda *_: build(), **more)


def benchmark(name, stream, **more):
    """Return a benchmark's record."""
    return BenchmarkComponent(
        name=name,
        family=name,
        config=NoOptions,
        summary="s",
        build=lambda _: SimpleNamespace(stream=stream),
        **more,
    )


def raising(error):
    """Return a function that raises."""

    def fail():
        raise error

    return fail


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


@pytest.fixture
def automatic(monkeypatch):
    """Let nothing be measured."""
    monkeypatch.setattr("lw2g.vit.loading.load_backbone", lambda *_, **options: options["device"])
    monkeypatch.setattr("lw2g.devices.precision.choose_precision", lambda model: f"p-{model}")


def test_a_driver_without_a_gpu_for_torch_is_a_problem(monkeypatch, automatic):
    """A CPU build of torch beside a driver is told; without a driver nothing is missing."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for there in (True, False):
        monkeypatch.setattr(steps.Path, "exists", lambda path, there=there: there)
        complaints = [finding.text for finding in steps.devices() if finding.status == "problem"]
        assert ["an NVIDIA driver is there" in text for text in complaints] == [True] * there


@pytest.mark.parametrize(("free", "status"), [(70, "ok"), (5, "note")])
def test_gpus_are_listed_with_memory_and_precision(monkeypatch, automatic, free, status):
    """Each GPU has a line; one that somebody fills is a note."""
    about = SimpleNamespace(name="A GPU", major=9, minor=0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: about)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda index: (free * 2**30, 80 * 2**30))
    first, *_, last = *steps.devices(), *steps.precision()
    assert first.status == status
    assert f"cuda:0: A GPU, 80 GiB memory, {free} GiB of it free, compute capability 9.0" in first.text
    assert last.text.startswith("cuda:0: auto takes p-cuda:0")


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


def test_supplies_are_here_or_not_or_broken(monkeypatch, tmp_path):
    """Built with defaults; embedded ones that are missing and broken ones are problems, others a note."""
    facts = DataSet(
        name="a",
        title="A",
        num_classes=1,
        folder="a",
        layout="",
        splits={},
        page="p",
        terms="t",
        routes=(ByHand(where="w"),),
    )
    gone = raising(DataError("a file is gone", "mend it"))
    catalogue = catalogue_of(
        benchmark("cached", TinyBenchmark(TinyBenchmarkConfig()).stream),
        benchmark("nothing", lambda: None),
        benchmark("gone", gone, embedded=True),
        benchmark("away", gone),
        benchmark("any", raising(ConfigError("none is named", "name one"))),
        benchmark("odd", raising(TypeError("boo"))),
        benchmark("published", raising(AssertionError("large data are not read")), data=facts),
        backbone("weights", gone),
    )
    odd = "plugin 'p' (a-dist 1) has the benchmark 'odd', which fails: TypeError: boo"
    nothing = odd.replace("odd", "nothing").partition("fails: ")[0] + (
        "fails: ContractError: benchmark 'nothing', stream: returned None; return a TaskStream"
    )
    broken = [
        ("problem", "gone: a file is gone", "mend it"),
        ("problem", nothing, "fix or uninstall 'a-dist', or set LW2G_DISABLE_PLUGINS=p"),
        ("problem", odd, "fix or uninstall 'a-dist', or set LW2G_DISABLE_PLUGINS=p"),
    ]
    remedy = "set LW2G_DATA to the folder of data sets, or fetch one: `lw2g data get NAME`"
    monkeypatch.setenv("LW2G_DATA", str(tmp_path))
    assert seen(steps.supplies("benchmark", catalogue)) == [
        *broken,
        ("ok", "here: cached", ""),
        ("note", "not here: away, published", remedy),
    ]
    (tmp_path / "a").mkdir()
    assert seen(steps.supplies("benchmark", catalogue))[len(broken) :] == [
        ("ok", "here: cached, published", ""),
        ("note", "not here: away", remedy),
    ]
    assert [finding.text for finding in steps.supplies("backbone", catalogue)] == [
        "here: none",
        "not here: weights",
    ]


class Answering(http.server.BaseHTTPRequestHandler):
    """Answers a HEAD request with the server's status."""

    def do_HEAD(self):
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.mark.parametrize("status", [200, 401, None])
def test_a_hub_is_reachable_whatever_it_answers(monkeypatch, status):
    """One that does not is a note: runs with files work without it."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with http.server.HTTPServer(("127.0.0.1", 0), Answering) as server:
        server.status = status
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.handle_request)
        if status is None:
            server.server_close()
        else:
            thread.start()
        (found,) = steps.hub(timeout=2)
        if status is not None:
            thread.join()
    unreachable = "fetch weights elsewhere and pass them with --weights FILE"
    expected = ("note", unreachable) if status is None else ("ok", "")
    assert (found.status, found.remedy) == expected


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
