"""lw2g doctor: what is not ok comes with what to do, and a step that crashes or hangs ends itself alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from lw2g.api import examined_steps as steps
from lw2g.api.examination import examine, isolated
from lw2g.api.finding import Finding, note, ok, problem
from lw2g.cli.main import main

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


# -- isolation -----------------------------------------------------------------------------------------------

# Finds that all is well, and then crashes at "crash", leaves at "leave", hangs at "hang".
FAKE_STEP = """
import json, os, sys, time
step = sys.argv[1]
print(json.dumps({"area": step, "status": "ok", "text": "fine", "remedy": ""}), flush=True)
if step == "crash":
    print("importing something", file=sys.stderr, flush=True)
    os.abort()
if step == "leave":
    sys.exit(3)
if step == "hang":
    time.sleep(60)
"""
FAKE = (sys.executable, "-I", "-S", "-c", FAKE_STEP)


@pytest.mark.parametrize(
    ("step", "end"),
    [
        ("a", []),
        ("crash", ["this check ended its process (SIGABRT: importing something)"]),
        ("leave", ["this check ended its process (exit code 3)"]),
        ("hang", ["this check gave no answer for 2 s"]),
    ],
)
def test_a_step_is_told_with_how_it_ended(step, end):
    """What it found before is kept; a crash or a hang is a problem of that step alone."""
    found = list(isolated(step, command=FAKE, limit=2 if step == "hang" else 60))
    assert [finding.text for finding in found] == ["fine", *end]
    assert [finding.status for finding in found] == ["ok", *["problem"] * len(end)]
    if step == "hang":  # which a busy machine does to a slow step
        assert found[-1].remedy.startswith("run it again when the machine has less to do")


# -- the command ---------------------------------------------------------------------------------------------


@pytest.fixture
def examined(monkeypatch):
    """Let the command find what a test says; returns the options it was called with."""
    calls = []

    def install(*findings):
        def examine(**options):
            calls.append(options)
            return iter(findings)

        monkeypatch.setattr("lw2g.api.doctor.findings", examine)
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
    lines = CliRunner().invoke(main, ["doctor", "--quick"]).stdout.splitlines()
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
    assert calls == [{"quick": True}]


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
        "import sys\nfrom lw2g.cli import doctor_command\nfrom lw2g.api import examination as e\n"
        "list(e.machine_findings()), list(e.package_findings())\n"
        "sys.exit(str({'torch', 'torchvision', 'timm', 'numpy'} & set(sys.modules) or ''))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""


@pytest.mark.slow
def test_a_broken_torchvision_is_told_and_ends_the_examination(tmp_path):
    """The real command on a torchvision that fails as a build beside another torch does."""
    broken = tmp_path / "torchvision"
    broken.mkdir()
    (broken / "__init__.py").write_text(
        'raise RuntimeError("operator torchvision::nms does not exist")', encoding="utf-8"
    )
    command = [sys.executable, "-m", "lw2g", "doctor", "--json"]
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert (done.returncode, done.stderr) == (1, "")
    found = [Finding(**entry) for entry in json.loads(done.stdout)]
    assert [finding.area for finding in found if finding.status == "problem"] == ["libraries"]
    *_, broken, imported, rest = found
    assert broken.text.startswith("torchvision cannot be imported: RuntimeError")
    assert broken.remedy.startswith("pip install --force-reinstall torch torchvision")
    assert "torch, timm" not in imported.text
    assert (rest.status, rest.remedy) == ("note", "repair the libraries first")


def test_the_quick_examination_is_one_process_that_imports_torch_alone(monkeypatch):
    """Neither the slow libraries nor the code of plugins, and no run: what is there is told all the same."""
    code = (
        "import sys\nfrom lw2g.api.examination import main\nmain()\n"
        "loaded = {'timm', 'torchvision', 'sklearn', 'torch._dynamo', 'lw2g.lifecycle'} & set(sys.modules)\n"
        "sys.exit(str(loaded) if loaded else 0)"
    )
    asked = []

    def alone(step):
        asked.append(step)
        return isolated(step, command=(sys.executable, "-P", "-c", code))

    monkeypatch.setattr("lw2g.api.examination.isolated", alone)
    found = list(examine(quick=True))
    assert asked == ["at a glance"]
    assert {finding.area for finding in found} >= {"machine", "packages", "libraries", "devices", "plugins"}
    assert [finding for finding in found if finding.area == "at a glance"] == []


def test_a_glance_ends_where_torch_cannot_be_imported(monkeypatch):
    """Devices and plugins are not looked at: the one problem is told, with its remedy."""
    monkeypatch.setattr(steps, "libraries", lambda names: iter([problem("libraries", "broken", "mend")]))
    assert [finding.text for finding in steps.at_a_glance()] == ["broken"]
