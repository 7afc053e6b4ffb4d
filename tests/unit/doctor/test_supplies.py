"""What the doctor says of plugins, weights and data, and of the hub where it may ask."""

from __future__ import annotations

import base64
import hashlib
import http.server
import threading
from types import SimpleNamespace

import attrs
import pytest

from lw2g.doctor.plugins import plugin_findings
from lw2g.doctor.supplies import backbone_findings, benchmark_findings, hub_findings
from lw2g.errors import ConfigError, DataError
from lw2g.interfaces.component import BackboneComponent, BenchmarkComponent, lazy
from lw2g.interfaces.dataset import ByHand, DataSet
from lw2g.registry.catalogue import Catalogue, Registered
from lw2g.registry.manager import Origin, Problem


@attrs.frozen(kw_only=True)
class NoOptions:
    pass


def catalogue_of(*components, distribution="a-dist"):
    """Return a catalogue of these components, all of one plugin."""
    origin = Origin(plugin="p", distribution=distribution, version="1")
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


def raising(error, cause=None):
    """Return a function that raises."""

    def fail():
        raise error from cause

    return fail


def seen(findings):
    """Return status, text and remedy of each finding."""
    return [(finding.status, finding.text, finding.remedy) for finding in findings]


# -- plugins -------------------------------------------------------------------------------------------------


def test_plugin_problems_and_disabled_plugins_are_told():
    """Every problem of the catalogue is one of the doctor's, with its remedy."""
    trouble = Problem(
        plugin="x", distribution="x-dist", version="2", what="cannot be imported", remedy="fix it"
    )
    catalogue = attrs.evolve(
        catalogue_of(backbone("b", print)), problems=(trouble,), disabled=("left", "right")
    )
    assert seen(plugin_findings(catalogue)) == [
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
    assert [finding.status for finding in plugin_findings(catalogue_of(there))] == ["ok"]
    *_, last = plugin_findings(catalogue_of(missing))
    assert last.status == "problem"
    assert "cannot build its backbone 'b'" in last.text
    assert "no attribute 'NoError'" in last.text


# -- weights and data ----------------------------------------------------------------------------------------


def loaded(sha256="ab" * 32):
    """Return what stands in for a backbone whose weights were loaded."""
    return lambda: SimpleNamespace(fingerprint=SimpleNamespace(sha256=sha256))


def test_backbones_are_told_by_how_they_can_be_had():
    """Loaded, not cached, to be brought, missing from the installation, and broken are kept apart."""
    components = [
        backbone("cached", loaded()),
        backbone("gone", raising(DataError("the weights are missing; reinstall it")), embedded=True),
        backbone("hub-a", raising(DataError("cannot be fetched; x"), OSError("offline"))),
        backbone("hub-b", raising(DataError("cannot be fetched; x"), OSError("offline"))),
        backbone("file", raising(DataError("needs a file; get it"))),
        backbone("any", raising(ConfigError("no model is named; name one"))),
        backbone("odd", raising(TypeError("boo"))),
    ]
    assert seen(backbone_findings(catalogue_of(*components))) == [
        ("ok", "cached: weights load, sha256 abababababab", ""),
        ("problem", "gone: the weights are missing", "reinstall it"),
        (
            "problem",
            "plugin 'p' (a-dist 1) has the backbone 'odd', which fails: TypeError: boo",
            "fix or uninstall 'a-dist', or set LW2G_DISABLE_PLUGINS=p",
        ),
        (
            "note",
            "not cached, fetched from the hub when used: hub-a, hub-b",
            "--network asks whether the hub answers; without it, use --weights FILE",
        ),
        (
            "note",
            "need a file: file",
            "`lw2g run --backbone NAME` says which file and where; pass --weights FILE",
        ),
    ]


@pytest.mark.parametrize(("content", "status"), [(b"weights", "ok"), (b"other", "problem")])
def test_embedded_weights_are_compared_with_what_was_installed(tmp_path, monkeypatch, content, status):
    """The hash in the distribution's own record decides; altered weights are a problem."""
    recorded = base64.urlsafe_b64encode(hashlib.sha256(b"weights").digest()).decode().rstrip("=")
    folder = tmp_path / "a_dist-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: a-dist\nVersion: 1\n")
    (folder / "RECORD").write_text(f"p/w.safetensors,sha256={recorded},7\np/__init__.py,,\n")
    (tmp_path / "p").mkdir()
    for name in ("w.safetensors", "__init__.py"):  # newer releases of Python list files that exist
        (tmp_path / "p" / name).touch()
    monkeypatch.syspath_prepend(tmp_path)
    component = backbone("small", loaded(hashlib.sha256(content).hexdigest()), embedded=True)
    (found,) = backbone_findings(catalogue_of(component))
    assert found.status == status
    assert ("pip install --force-reinstall --no-deps a-dist" in found.remedy) == (status == "problem")


def test_an_editable_installation_has_no_hash_to_compare_with():
    """Nothing is claimed where nothing was compared."""
    component = backbone("small", loaded(), embedded=True)
    (found,) = backbone_findings(catalogue_of(component, distribution="not-there-at-all"))
    assert found.status == "ok"
    assert "records none to compare with" in found.text


def test_benchmarks_are_told_by_whether_they_find_their_data():
    """Missing data are a note where a user would bring them, a problem where they should be embedded."""
    release = threading.Event()
    stream = SimpleNamespace(tasks=(1, 2), num_classes=4)
    components = [
        benchmark("a-here", lambda: stream),
        benchmark("b-away", raising(DataError("benchmark 'b-away' has no data; get them"))),
        benchmark("c-embedded", raising(DataError("a file is gone; reinstall it")), embedded=True),
        benchmark("d-odd", raising(ZeroDivisionError("boo"))),
        benchmark("e-large", release.wait),
    ]
    found = seen(benchmark_findings(catalogue_of(*components), patience=0.2))
    release.set()
    assert found[:3] == [
        ("ok", "a-here: 2 tasks, 4 classes", ""),
        ("note", "benchmark 'b-away' has no data", "get them"),
        ("problem", "c-embedded: a file is gone", "reinstall it"),
    ]
    assert found[3][:2] == (
        "problem",
        "plugin 'p' (a-dist 1) has the benchmark 'd-odd', which fails: ZeroDivisionError: boo",
    )
    assert found[4][:2] == ("note", "e-large: data are there, but reading them takes more than 0.2 s")


class Answering(http.server.BaseHTTPRequestHandler):
    """Answers a HEAD request with the server's status."""

    def do_HEAD(self):
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_):
        pass


def test_published_data_that_are_not_here_are_one_line(monkeypatch, tmp_path):
    """Data sets without their folder are named together; one that is there is read."""
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
    broken = raising(DataError("a is damaged; mend it"))
    catalogue = catalogue_of(benchmark("one", broken, data=facts), benchmark("two", broken, data=facts))
    monkeypatch.delenv("LW2G_DATA", raising=False)
    remedy = "set LW2G_DATA to where they are, or fetch one: `lw2g data get NAME`"
    told = [("note", "not here: one, two (LW2G_DATA is not set)", remedy)]
    assert seen(benchmark_findings(catalogue)) == told
    monkeypatch.setenv("LW2G_DATA", str(tmp_path))
    (tmp_path / "a").mkdir()
    assert [finding.text for finding in benchmark_findings(catalogue)] == [
        "one: a is damaged",
        "two: a is damaged",
    ]


@pytest.mark.parametrize("status", [200, 401])
def test_a_hub_that_answers_is_reachable(monkeypatch, status):
    """Whatever it answers, it is there."""
    with http.server.HTTPServer(("127.0.0.1", 0), Answering) as server:
        server.status = status
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        assert seen(hub_findings()) == [("ok", "the hub answers", "")]
        thread.join()


def test_a_hub_that_cannot_be_reached_is_a_note(monkeypatch):
    """Runs with files work without it."""
    with http.server.HTTPServer(("127.0.0.1", 0), Answering) as server:
        port = server.server_port
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", f"http://127.0.0.1:{port}")
    (found,) = hub_findings(timeout=2)
    assert (found.status, found.remedy) == (
        "note",
        "fetch weights elsewhere and pass them with --weights FILE",
    )
