"""lw2g doctor: what is not ok comes with what to do, and nothing that is broken ends the examination."""

from __future__ import annotations

import base64
import hashlib
import http.server
import json
import os
import subprocess
import sys
import threading
from types import SimpleNamespace

import attrs
import pytest
import torch
from click.testing import CliRunner

from lw2g.cli.main import main
from lw2g.doctor import devices, machine
from lw2g.doctor.devices import advise_precision, device_findings, precision_findings
from lw2g.doctor.examination import traced
from lw2g.doctor.finding import Finding, note, ok, problem, split_remedy
from lw2g.doctor.libraries import library_findings
from lw2g.doctor.machine import memory_finding, run_directory_findings, thread_finding, usable_cores
from lw2g.doctor.packages import Installed, package_findings
from lw2g.doctor.plugins import plugin_findings
from lw2g.doctor.smoke import smoke_findings
from lw2g.doctor.supplies import backbone_findings, benchmark_findings, hub_findings
from lw2g.doctor.worker import STEPS, isolated, performed
from lw2g.errors import ConfigError, DataError
from lw2g.interfaces.component import BackboneComponent, BenchmarkComponent
from lw2g.registry.catalogue import Catalogue, Registered, load_catalogue
from lw2g.registry.manager import Origin, Problem

GIB = 2**30


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


# -- findings ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["note", "problem"])
def test_what_is_not_ok_needs_a_remedy(status):
    """A finding that leaves the user alone with it cannot be made."""
    with pytest.raises(ValueError, match="expected a remedy for 'x' but got none"):
        Finding(area="a", status=status, text="x")
    assert Finding(area="a", status="ok", text="x").remedy == ""


def test_findings_are_single_lines():
    """Messages of several lines, as torch writes them, become one."""
    assert problem("a", "one\n  two", "three\nfour") == Finding(
        area="a", status="problem", text="one two", remedy="three four"
    )


def test_messages_of_lw2g_carry_their_remedy():
    """What stands after the first semicolon is the remedy."""
    assert split_remedy("no data; get some; or none", "look") == ("no data", "get some; or none")
    assert split_remedy("no data", "look") == ("no data", "look")


# -- machine -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cores", "load", "setting", "status", "said"),
    [
        (16, 0.5, None, "ok", ""),
        (2, 0.0, None, "note", "cores are few: export OMP_NUM_THREADS=1"),
        (16, 9.0, None, "note", "cores are busy: export OMP_NUM_THREADS=1"),
        (16, 9.0, "1", "ok", ""),
        (4, 0.0, "8", "note", "export OMP_NUM_THREADS=4"),
        (0.5, 0.0, "1", "note", "export OMP_NUM_THREADS=1"),
        (4, 0.0, "many", "problem", "export OMP_NUM_THREADS=1, or unset it"),
        (4, 0.0, "0", "problem", "export OMP_NUM_THREADS=1, or unset it"),
    ],
)
def test_threads_are_judged_by_cores_load_and_setting(cores, load, setting, status, said):
    """Few or busy cores without a setting, too many threads, and nonsense are told with what to set."""
    found = thread_finding(cores, load, setting)
    assert found.status == status
    assert found.remedy.startswith(said)
    assert bool(found.remedy) == bool(said)


def test_little_memory_is_a_note():
    """4 GiB are the border; an unknown size is no reproach."""
    assert memory_finding(4 * GIB).status == "ok"
    assert memory_finding(4 * GIB - 1).status == "note"
    assert memory_finding(None).status == "ok"


def test_a_container_s_share_of_the_cores_counts(tmp_path):
    """A quota below the bound cores is what can be used; no quota leaves them."""
    everything = usable_cores(tmp_path / "nothing")
    assert everything >= 1
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    assert usable_cores(tmp_path) == 0.5
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert usable_cores(tmp_path) == everything


@pytest.mark.parametrize(("free", "status"), [(5 * GIB, "ok"), (GIB - 1, "note"), (GIB // 20, "problem")])
def test_room_for_runs_is_judged(tmp_path, monkeypatch, free, status):
    """Little room is a note, none a problem; a folder that does not exist yet is judged by the one above."""
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda place: SimpleNamespace(free=free))
    (found,) = run_directory_findings(tmp_path / "not" / "yet")
    assert found.status == status
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_a_problem(tmp_path):
    """A file where the folder should be is told with the way around it."""
    (tmp_path / "file").touch()
    (found,) = run_directory_findings(tmp_path / "file" / "runs")
    assert (found.status, "--out DIR" in found.remedy) == ("problem", True)


# -- packages ------------------------------------------------------------------------------------------------

FITTING = {"lw2g": "0.1.0", "torch": "2.12.1+cpu", "torchvision": "0.27.1", "click": "8.3", "mlflow": "3.1"}
REQUIRES = {
    "lw2g": ("torch>=2.11", "torchvision", "click>=8.2", 'mlflow>=2.14; extra == "track"'),
    "torchvision": ("numpy", "torch==2.12.1", 'scipy; extra == "scipy"'),
}


def installed(python=">=3.11", **changes):
    """Return an environment in which everything fits but for the given versions."""
    versions = FITTING | changes
    return Installed(
        version=versions.get,
        requires=lambda name: REQUIRES.get(name, ()),
        extras=["track"],
        python=python,
    )


def not_ok(findings):
    """Return status, text and remedy of what is not ok."""
    return [entry for entry in seen(findings) if entry[0] != "ok"]


def test_an_environment_in_which_all_fits_has_no_complaint():
    """Versions are listed, with the extras and the pair."""
    found = list(package_findings(installed()))
    assert not_ok(found) == []
    texts = [finding.text for finding in found]
    assert "3 of 3 dependencies fit: torch 2.12.1+cpu, torchvision 0.27.1, click 8.3" in texts
    assert "extra 'track': mlflow 3.1" in texts
    assert "torchvision 0.27.1 takes torch 2.12.1+cpu" in texts


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"click": None}, ("problem", "click is not installed", 'pip install "click>=8.2"')),
        (
            {"click": "8.1"},
            ("problem", "click 8.1 does not fit lw2g, which needs click>=8.2", 'pip install "click>=8.2"'),
        ),
        (
            {"mlflow": None},
            (
                "note",
                "extra 'track' is not complete, it lacks mlflow>=2.14",
                'pip install "lw2g[track]" where it is wanted',
            ),
        ),
        (
            {"torch": "2.13.0+cu130"},
            (
                "problem",
                "torchvision 0.27.1 does not take torch 2.13.0+cu130 but torch==2.12.1",
                "pip install --force-reinstall torch==2.13.0 torchvision, from one index",
            ),
        ),
        (
            {"lw2g": None},
            (
                "problem",
                "lw2g is not installed, so no plugin can be found",
                "pip install . in the checkout, or pip install lw2g",
            ),
        ),
    ],
)
def test_what_does_not_fit_is_told_with_the_command_that_mends_it(changes, expected):
    """A missing or unfit dependency, a missing extra, a wrong pair, and lw2g itself not installed."""
    assert not_ok(package_findings(installed(**changes))) == [expected]


def test_an_unsupported_python_is_a_problem():
    """The Python that runs is compared with what the distribution states."""
    (found,) = not_ok(package_findings(installed(python=">=4")))
    assert found[0] == "problem"
    assert "which needs >=4" in found[1]


def test_this_environment_is_read_from_its_metadata():
    """Without a fake, the real versions are found."""
    found = list(package_findings())
    assert any(f"torch {Installed.here().version('torch')}" in finding.text for finding in found)


# -- libraries and what follows from them --------------------------------------------------------------------


def test_a_library_that_fails_in_its_own_way_is_named(tmp_path, monkeypatch, capsys):
    """Any exception of an import is a problem of that library, and the others are tried."""
    nms = "operator torchvision::nms does not exist"
    (tmp_path / "torchvision.py").write_text(f"raise RuntimeError({nms!r})")
    monkeypatch.delitem(sys.modules, "torchvision", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    assert seen(library_findings(["json", "torchvision", "csv"])) == [
        (
            "problem",
            f"torchvision cannot be imported: RuntimeError: {nms}",
            "pip install --force-reinstall torch torchvision: builds of one release, both from one index",
        ),
        ("ok", "2 of 3 can be imported: json, csv", ""),
    ]
    assert capsys.readouterr().err.splitlines()[1] == "importing torchvision"


def test_what_fails_for_a_broken_library_is_mended_there():
    """The same error further on points back to the library; other problems keep their remedies."""
    broken = problem("libraries", "torchvision cannot be imported: RuntimeError: no nms", "reinstall")
    plugin = problem("plugins", "plugin 'x' cannot be imported: RuntimeError: no nms", "uninstall 'x'")
    other = problem("plugins", "plugin 'y' cannot be imported: ValueError: boo", "uninstall 'y'")
    assert [finding.remedy for finding in traced([broken, plugin, other])] == [
        "reinstall",
        "mend torchvision first",
        "uninstall 'y'",
    ]


# -- devices and precision -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ratio", "error", "status", "advice"),
    [
        (2.5, 0.004, "ok", "bf16 works at 2.5 times the speed of fp32: try --precision bf16-mixed"),
        (0.25, 0.004, "ok", "bf16 works at 0.25 times the speed of fp32: keep the default, 32-true"),
        (2.5, 0.3, "problem", "bf16 products are wrong"),
        (2.5, float("nan"), "problem", "bf16 products are wrong"),
    ],
)
def test_bf16_is_advised_where_it_is_right_and_faster(ratio, error, status, advice):
    """Speed decides the advice; a wrong product is a problem whatever its speed."""
    found = advise_precision("cpu", ratio, error)
    assert found.status == status
    assert advice in found.text


def test_bf16_is_really_tried_on_the_cpu():
    """A product is taken in both precisions on this machine."""
    found = next(iter(precision_findings()))
    assert found.text.startswith("cpu: bf16")


def test_a_device_without_bf16_is_a_note(monkeypatch):
    """What torch cannot do there is told, with the default as the way out."""
    monkeypatch.setattr(devices, "_measure", lambda device: raising(RuntimeError("not implemented"))())
    found = next(iter(precision_findings()))
    assert (found.status, found.text) == ("note", "bf16 cannot be used on cpu: not implemented")


def test_a_driver_without_a_gpu_for_torch_is_a_problem(monkeypatch):
    """A CPU build of torch beside a driver is told; without a driver nothing is missing."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(devices, "_driver", lambda: "550.1")
    (found,) = not_ok(device_findings())
    assert "driver 550.1 is there" in found[1]
    monkeypatch.setattr(devices, "_driver", lambda: None)
    assert not_ok(device_findings()) == []


@pytest.mark.parametrize(("free", "status"), [(70, "ok"), (5, "note")])
def test_gpus_are_listed_with_memory_and_driver(monkeypatch, free, status):
    """Each GPU has a line; one that somebody fills is a note."""
    about = SimpleNamespace(name="A GPU", major=9, minor=0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: about)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda index: (free * GIB, 80 * GIB))
    monkeypatch.setattr(devices, "_driver", lambda: "550.1")
    found = next(iter(device_findings()))
    assert found.status == status
    assert f"cuda:0: A GPU, 80 GiB memory, {free} GiB of it free, compute capability 9.0" in found.text
    assert "driver 550.1" in found.text


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


# -- isolation -----------------------------------------------------------------------------------------------

# Does the steps it is given: crashes at "crash", hangs at "hang", else finds that all is well.
FAKE_WORKER = """
import json, os, sys, time
for step in sys.argv[1:]:
    if step == "crash":
        print("importing something", file=sys.stderr, flush=True)
        os.abort()
    if step == "leave":
        sys.exit(3)
    if step == "hang":
        time.sleep(60)
    print(json.dumps({"area": step, "status": "ok", "text": "fine", "remedy": ""}))
    print(json.dumps({"done": step}), flush=True)
"""
FAKE = (sys.executable, "-I", "-S", "-c", FAKE_WORKER)


def test_a_crash_ends_one_step_alone():
    """The step is told with how it ended and what was said last; the others are done."""
    found = list(isolated(["a", "crash", "b", "leave", "c"], command=FAKE))
    assert [(finding.area, finding.status) for finding in found] == [
        ("a", "ok"),
        ("crash", "problem"),
        ("b", "ok"),
        ("leave", "problem"),
        ("c", "ok"),
    ]
    assert found[1].text == "this check ended its process (SIGABRT: importing something)"
    assert found[3].text == "this check ended its process (exit code 3)"


def test_a_hang_ends_one_step_alone():
    """A step that gives no answer is given up."""
    found = list(isolated(["a", "hang", "b"], command=FAKE, limit=0.5))
    assert [finding.text for finding in found] == ["fine", "this check gave no answer for 0.5 s", "fine"]


def test_the_real_worker_writes_findings(monkeypatch):
    """A step goes through the real process and comes back whole."""
    assert list(isolated(["hub not asked"])) == list(STEPS["hub not asked"]())


def test_an_error_in_a_step_is_a_finding():
    """What a step found before it failed is kept."""

    def step():
        yield ok("a", "fine")
        raise KeyError("boo")

    found = list(performed("a", step))
    assert found[0].status == "ok"
    assert found[1].text == "this check could not end: KeyError: 'boo'"


# -- the small run and the command ---------------------------------------------------------------------------


@pytest.mark.slow
def test_the_small_run_is_a_real_one():
    """Two tasks of the default experiment are learned and evaluated."""
    (found,) = smoke_findings()
    assert found.status == "ok"
    assert "2 tasks learned and evaluated" in found.text


def test_a_small_run_that_cannot_be_resolved_is_a_problem():
    """Without the default components the reason is told."""
    (found,) = smoke_findings(load_catalogue(entry_points=False))
    assert found.status == "problem"
    assert "the default experiment does not run" in found.text


@pytest.fixture
def examined(monkeypatch):
    """Let the command find what a test says; returns the options it was called with."""
    calls = []

    def install(*findings):
        def examine(**options):
            calls.append(options)
            return iter(findings)

        monkeypatch.setattr("lw2g.doctor.examination.examine", examine)
        return calls

    return install


def test_the_exit_code_is_that_of_the_worst_finding(examined):
    """Notes leave it 0, a problem makes it 1."""
    examined(ok("a", "fine"), note("b", "so so", "do"))
    assert CliRunner().invoke(main, ["doctor"]).exit_code == 0
    examined(problem("a", "bad", "mend"), ok("a", "fine"))
    assert CliRunner().invoke(main, ["doctor"]).exit_code == 1
    assert CliRunner().invoke(main, ["doctor", "--json"]).exit_code == 1


def test_findings_are_printed_by_area_with_their_remedies(examined):
    """Area, status, text, remedy, and the count at the end."""
    calls = examined(ok("one", "fine"), ok("one", "too"), problem("two", "bad", "mend it"))
    lines = CliRunner().invoke(main, ["doctor", "--network"]).stdout.splitlines()
    assert [" ".join(line.split()) for line in lines] == [
        "one",
        "ok fine",
        "ok too",
        "two",
        "problem bad",
        "-> mend it",
        "",
        "1 problem, no notes",
    ]
    assert calls == [{"network": True}]


def test_json_holds_every_finding(examined):
    """A program can read what a person reads."""
    examined(ok("one", "fine"), note("two", "so so", "do it"))
    assert json.loads(CliRunner().invoke(main, ["doctor", "--json"]).stdout) == [
        {"area": "one", "status": "ok", "text": "fine", "remedy": ""},
        {"area": "two", "status": "note", "text": "so so", "remedy": "do it"},
    ]


def test_the_command_itself_imports_no_torch():
    """A broken torch cannot keep the doctor from starting: its own process never imports it."""
    code = (
        "import sys\nfrom lw2g.cli import doctor\nfrom lw2g.doctor import examination as e\n"
        "list(e.machine_findings()), list(e.run_directory_findings()), list(e.package_findings())\n"
        "sys.exit(str({'torch', 'torchvision', 'timm', 'numpy'} & set(sys.modules) or ''))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""


@pytest.mark.slow
def test_a_broken_torchvision_is_told_and_the_rest_is_still_looked_at(tmp_path):
    """The real command on a torchvision that fails as a build beside another torch does."""
    broken = tmp_path / "torchvision"
    broken.mkdir()
    (broken / "__init__.py").write_text(
        'raise RuntimeError("operator torchvision::nms does not exist")', encoding="utf-8"
    )
    command = [sys.executable, "-m", "lw2g", "doctor", "--json"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.returncode, done.stderr) == (1, "")
    found = [Finding(**entry) for entry in json.loads(done.stdout)]
    broken_ones = {finding.area: finding for finding in reversed(found) if finding.status == "problem"}
    assert broken_ones["libraries"].text.startswith("torchvision cannot be imported: RuntimeError")
    assert broken_ones["libraries"].remedy.startswith("pip install --force-reinstall torch torchvision")
    assert broken_ones["plugins"].remedy == "mend torchvision first"
    assert broken_ones["smoke run"].remedy == "mend torchvision first"
    fine = {finding.area for finding in found if finding.status == "ok"}
    assert fine >= {"machine", "packages", "libraries", "devices", "precision", "weights"}
