"""What the doctor says of the machine: cores, memory, disk, packages, libraries, devices, precision."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import torch

from lw2g.doctor import devices, machine
from lw2g.doctor.devices import device_findings, judge_products, precision_findings
from lw2g.doctor.examination import traced
from lw2g.doctor.finding import problem
from lw2g.doctor.libraries import library_findings
from lw2g.doctor.machine import (
    allocator_finding,
    memory_finding,
    run_directory_findings,
    thread_finding,
    usable_cores,
)
from lw2g.doctor.packages import Installed, package_findings
from lw2g.training.devices import precision

GIB = 2**30


def seen(findings):
    """Return status, text and remedy of each finding."""
    return [(finding.status, finding.text, finding.remedy) for finding in findings]


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


def test_the_allocator_is_reported():
    """What runs ask of it, with the variable that turns it off, or why they leave it alone."""
    assert "LW2G_KEEP_MEMORY=0" in allocator_finding(None).text
    assert "left as it is (jemalloc)" in allocator_finding("jemalloc").text


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
        (2.5, 0.004, "ok", "bf16 products work at 2.5 times the speed of fp32"),
        (2.5, 0.3, "problem", "bf16 products are wrong"),
        (2.5, float("nan"), "problem", "bf16 products are wrong"),
    ],
)
def test_wrong_products_are_a_problem(ratio, error, status, advice):
    """A right product is told with its speed; a wrong one is a problem whatever its speed."""
    found = judge_products("cpu", ratio, error)
    assert found.status == status
    assert advice in found.text


def test_bf16_is_really_tried_on_the_cpu(monkeypatch):
    """A product is taken in both precisions on this machine, and what auto takes is told."""
    monkeypatch.setattr(precision, "has_bf16_instructions", lambda: False)
    products, chosen = list(precision_findings())[:2]
    assert products.text.startswith("cpu: bf16 products")
    assert chosen.text.startswith("cpu: auto takes precision 32-true (the CPU has no bf16 instructions)")


def test_a_device_without_bf16_is_a_note(monkeypatch):
    """What torch cannot do there is told, with the default as the way out."""

    def fail(device):
        raise RuntimeError("not implemented")

    monkeypatch.setattr(devices, "_measure", fail)
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
