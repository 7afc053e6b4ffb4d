"""lw2g doctor: what is not ok comes with what to do, and nothing that is broken ends the examination."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from lw2g.cli.main import main
from lw2g.doctor.finding import Finding, note, ok, problem, split_remedy
from lw2g.doctor.smoke import smoke_findings
from lw2g.doctor.worker import STEPS, isolated, performed
from lw2g.registry.catalogue import load_catalogue

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
