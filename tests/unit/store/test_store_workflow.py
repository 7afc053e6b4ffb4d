"""The workflow of a store runs nothing of what is proposed to it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from lw2g_store.layout import init
from store_packs import only


def _git(place: Path, *words: str) -> str:
    names = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *names, *words], cwd=place, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_workflow_runs_nothing_of_a_proposal(tmp_path: Path) -> None:
    """It is the base's, its token reads, nothing of the proposer's is in a command, and all is pinned."""
    init(tmp_path / "store")
    text = (tmp_path / "store/.github/workflows/check.yml").read_text(encoding="utf-8")
    workflow = yaml.safe_load(text)
    assert workflow[True].keys() == {"pull_request_target", "push"}  # YAML reads `on` as true
    assert workflow["permissions"] == {"contents": "read"}
    (job,) = workflow["jobs"].values()
    for step in job["steps"]:
        assert "${{" not in step.get("run", "")
        assert re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", step.get("uses", f"actions/run@{'0' * 40}"))
    assert job["steps"][0]["with"]["persist-credentials"] is False
    values = [line.partition("#")[0] for line in text.splitlines()]
    assert not [line for line in values if "secrets" in line or "cache" in line]
    assert "--require-hashes" in text
    pins = (tmp_path / "store/tools/requirements.txt").read_text(encoding="utf-8").splitlines()
    pinned = re.compile(r"[a-z-]+==[\d.]+ --hash=sha256:[0-9a-f]{64}")
    assert all(pinned.fullmatch(line) for line in pins if not line.startswith("#"))


@pytest.mark.parametrize(
    ("also", "passes"),
    [
        (None, True),
        (".github/workflows/check.yml", False),
        ("tools/requirements.txt", False),
        ("runs/.gitattributes", False),
    ],
)
def test_the_commands_of_the_workflow_take_a_run_and_nothing_else(
    store: Path, tmp_path: Path, also: str | None, passes: bool
) -> None:
    """They are run on a proposal to a repository, as the service that hosts it would run them."""
    origin, pack = tmp_path / "origin", only(store)
    kept = pack.rename(tmp_path / pack.name)
    shutil.copytree(store, origin)
    _git(origin, "init", "-q", "-b", "main")
    _git(origin, "add", ".")
    _git(origin, "commit", "-qm", "store")
    shutil.copytree(kept, origin / pack.relative_to(store))
    if also is not None:
        (origin / also).write_text("* filter=lfs\n")
    _git(origin, "add", ".")
    _git(origin, "commit", "-qm", "a run")
    _git(origin, "update-ref", "refs/pull/7/head", "HEAD")
    _git(origin, "reset", "-q", "--hard", "HEAD~1")
    base = tmp_path / "base"
    _git(tmp_path, "clone", "-q", str(origin), str(base))
    steps = yaml.safe_load((base / ".github/workflows/check.yml").read_text())["jobs"]["check"]["steps"]
    (command,) = [step["run"] for step in steps if step.get("name") == "Check the proposal"]
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "lw2g").write_text(f'#!/bin/sh\nexec {sys.executable} -m lw2g "$@"\n')
    (tools / "lw2g").chmod(0o755)
    own = {"NUMBER": "7", "RUNNER_TEMP": str(tmp_path), "PATH": f"{tools}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-e", "-c", command],
        cwd=base,
        env=os.environ | own,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode == 0) is passes, done.stderr
    assert (
        "recomputed: FAA" if passes else "protocols, badges and tools are the maintainers'"
    ) in done.stdout or ("is changed or removed" in done.stdout)
