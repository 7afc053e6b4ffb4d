"""What the doctor says of the machine: cores, memory, disk, packages."""

from __future__ import annotations

from email.message import Message
from importlib.metadata import PackageNotFoundError
from types import SimpleNamespace

import pytest

from lw2g.api import machine
from lw2g.api.machine import machine_findings, package_findings, room_finding, thread_finding, usable_cores

GIB = 2**30


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
    assert (found.status, found.remedy) == (status, said)


@pytest.mark.parametrize(("size", "status"), [(4 * GIB, "ok"), (4 * GIB - 1, "note"), (None, "ok")])
def test_memory_is_judged(monkeypatch, size, status):
    """4 GiB are the border, and an unknown size is no reproach."""
    monkeypatch.setattr(machine, "usable_memory", lambda: size)
    _, memory, _, _ = machine_findings()
    assert memory.status == status


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
    assert room_finding(tmp_path / "not" / "yet").status == status
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_a_problem(tmp_path):
    """A file where the folder should be is told with the way around it."""
    (tmp_path / "file").touch()
    found = room_finding(tmp_path / "file" / "runs")
    assert (found.status, "--out DIR" in found.remedy) == ("problem", True)


FITTING = {"lw2g": "0.1.0", "torch": "2.12.1+cpu", "torchvision": "0.27.1", "click": "8.3"}
REQUIRES = {
    "lw2g": ["torch>=2.11", "torchvision", "click>=8.2", 'mlflow>=2.14; extra == "track"'],
    "torchvision": ["torch==2.12.1", 'scipy; extra == "scipy"'],
}


@pytest.fixture
def told(monkeypatch):
    """Return a function that says what is not ok where all fits but for the given versions."""

    def ask(python=">=3.11", **changes):
        versions, about = FITTING | changes, Message()
        about["Requires-Python"], about["Provides-Extra"] = python, "track"

        def version(name):
            if versions.get(name) is None:
                raise PackageNotFoundError(name)
            return versions[name]

        monkeypatch.setattr(machine, "version", version)
        monkeypatch.setattr(machine, "requires", REQUIRES.get)
        monkeypatch.setattr(machine, "metadata", lambda name: about)
        found = list(package_findings())
        if not changes:
            assert (
                "3 of 3 dependencies fit: torch 2.12.1+cpu, torchvision 0.27.1, click 8.3" in found[-1].text
            )
        return [(one.status, one.text, one.remedy) for one in found if one.status != "ok"]

    return ask


@pytest.mark.parametrize(
    ("changes", "status", "text", "remedy"),
    [
        ({"click": None}, "problem", "click is not installed", 'pip install "click>=8.2"'),
        ({"click": "8.1"}, "problem", "click 8.1 does not fit lw2g", 'pip install "click>=8.2"'),
        (
            {"torch": "2.13.0+cu130"},
            "problem",
            "torch 2.13.0+cu130 does not fit torchvision, which needs torch==2.12.1",
            'pip install "torch==2.12.1"',
        ),
        ({"lw2g": None}, "problem", "lw2g is not installed, so no plugin can be found", "pip install ."),
        ({"python": ">=4"}, "problem", "does not fit lw2g, which needs python>=4", "make an environment"),
    ],
)
def test_what_does_not_fit_is_told_with_the_command_that_mends_it(told, changes, status, text, remedy):
    """Dependencies, torch beside torchvision, lw2g itself and Python; else nothing is said."""
    assert told() == []
    ((found, said, how),) = told(**changes)
    assert found == status
    assert text in said
    assert remedy in how


def test_this_environment_is_read_from_its_metadata():
    """Without a fake, the real versions are found."""
    assert any(f"numpy {machine.version('numpy')}" in finding.text for finding in package_findings())
