"""What Python drops under -OO, docstrings and assertions, no command needs."""

from __future__ import annotations

import inspect
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

import lw2g
from all_commands import commands_of
from lw2g.api.plugins import describe
from lw2g.cli.main import main
from lw2g.cli.signature import help_of, meaning_of
from lw2g.config.describe import describe_options
from lw2g.config.settings import GrowthConfig, RunConfig
from lw2g.ground.docstrings import docstring

SAID = """
import json
from said_under_oo import said
print(json.dumps(said()))
"""
RUN = """
import json, sys
import lw2g
names = {"baseline": "simple-cil", "benchmark": "features", "out": sys.argv[1]}
record = lw2g.run(**names, **json.loads(sys.argv[2]))
print(json.dumps(dict(record.metrics)))
"""


def said() -> dict[str, Any]:
    """Return what docstrings say to users: the help of all commands, ranges of options, summaries."""
    options = (*describe_options(GrowthConfig), *describe_options(RunConfig))
    return {
        "help": dict(_help(main, "lw2g")),
        "ranges": {option.name: option.range for option in options},
        "summary": describe("run")[0].summary,
    }


def _help(command: click.Command, name: str) -> Iterator[tuple[str, str]]:
    # as a child of `lw2g`: a command keeps the option of its help from when it was first asked
    options = ["-h", "--help"]
    with click.Context(command, info_name=name, terminal_width=80, help_option_names=options) as context:
        yield name, command.get_help(context)
    if isinstance(command, click.Group):
        for below, child in commands_of(command):
            yield from _help(child, f"{name} {below}")


def optimised(code: str, *arguments: str, **environment: str) -> str:
    """Return what a program prints under -OO."""
    done = subprocess.run(
        [sys.executable, "-OO", "-c", code, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_help_is_the_same_without_docstrings(tmp_path):
    """Every command's help, ranges of options and summaries come from the source then."""
    shutil.copy(__file__, tmp_path / "said_under_oo.py")
    places = (str(tmp_path), str(Path(inspect.getfile(commands_of)).parent))
    without = json.loads(optimised(SAID, PYTHONPATH=os.pathsep.join(places)))
    kept = said()
    assert "--backbone" in kept["help"]["lw2g start"]
    assert len(kept["help"]) > 30
    assert without == kept


@pytest.mark.slow
def test_a_run_is_the_same_without_docstrings(tmp_path):
    """A run gives the record that it gives otherwise."""
    draw = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), 6)
    centres = draw.normal(size=(4, 8)) * 3
    parts = {}
    for split in ("train", "test"):
        parts[f"{split}_x"] = (centres[labels] + draw.normal(size=(24, 8))).astype("float32")
        parts[f"{split}_y"] = labels
    np.savez(tmp_path / "f.npz", **parts)
    options = {"benchmark.file": str(tmp_path / "f.npz"), "increment": 2, "progress": False}
    record = lw2g.run(baseline="simple-cil", benchmark="features", out=tmp_path / "with", **options)
    printed = optimised(RUN, str(tmp_path / "without"), json.dumps(options))
    assert json.loads(printed) == dict(record.metrics)
    assert record.metrics["faa"] > 50


@pytest.mark.slow
def test_promises_are_checked_without_docstrings():
    """`lw2g check` names what it checks, which it takes from docstrings."""
    code = "from lw2g.cli.main import main; main(['check', 'simple-cil'], prog_name='lw2g')"
    assert "Features depend on no more than the scope declares" in optimised(code)


def test_without_docstrings_and_source_help_is_empty():
    """An installation of compiled files alone works, and says nothing where it has nothing to say."""

    def stripped(*, task: int = 0) -> None:
        pass

    assert docstring(stripped) == ""
    assert help_of(stripped) == ""
    assert meaning_of(stripped, "task") == ""


@pytest.mark.parametrize("thing", [docstring, sys.modules["lw2g.ground.docstrings"], click.Group])
def test_docstrings_are_those_of_python(thing):
    """Where Python keeps them, nothing else is asked."""
    assert docstring(thing) == inspect.getdoc(thing)
