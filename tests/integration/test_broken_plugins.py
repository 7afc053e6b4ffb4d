"""Installed plugins that are broken in every way we know are told in one line each, and disturb nothing.

Everything here goes through the command line in a process of its own, with distributions on its path as pip
leaves them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from strangers import install, offering

CLASH = "registers policy 'same-name', which is registered by plugin 'one' (one-dist 1.0) and plugin 'two' "

# entry point -> (distribution, source, what is said of it)
BROKEN = {
    "absent": ("absent-dist", "import not_there_at_all", "cannot be imported: ModuleNotFoundError: No "),
    "typo": ("typo-dist", "def lw2g_policies(:\n    pass\n", "cannot be imported: SyntaxError: "),
    "leaving": ("leaving-dist", "import sys\nsys.exit('no licence')", "cannot be imported: SystemExit: no "),
    "online": (
        "online-dist",
        # nobody listens there: what a machine without a network gives, without one
        "from urllib.request import urlopen\nurlopen('http://127.0.0.1:9/registry.json', timeout=5)",
        "cannot be imported: URLError: ",
    ),
    "misspelt": (
        "misspelt-dist",
        offering("[record('lost')]", hook="lw2g_policy"),
        "has 'lw2g_policy', which is no hook (did you mean 'lw2g_policies'?); use one of ",
    ),
    "wrong": ("wrong-dist", offering("['min']"), "returns 'str' from lw2g_policies, which takes"),
    "nothing": ("nothing-dist", offering("None"), "returns NoneType from lw2g_policies, not a list"),
    "raising": ("raising-dist", offering("[1 / 0]"), "fails in lw2g_policies: ZeroDivisionError: "),
    "plain": (
        "plain-dist",
        offering("[record('plain', config=dict)]"),
        "registers policy 'plain' with the config <class 'dict'>, which is no attrs class",
    ),
    "one": (
        "one-dist",
        offering("[record('same-name')]"),
        CLASH,
    ),
    "two": (
        "two-dist",
        offering("[record('same-name')]"),
        CLASH,
    ),
    "taken": (
        "taken-dist",
        offering("[record('min')]"),
        "registers policy 'min', which lw2g has itself; its own is called 'taken-dist:min'",
    ),
    "shared": ("left-dist", offering("[record('left')]"), "is not loaded: its entry-point name 'shared' is"),
}  # fmt: skip
RIVAL = ("right-dist", offering("[record('right')]"), "is not loaded: its entry-point name 'shared' is")
HEALTHY = {"healthy": ("healthy-dist", offering("[record('cautious')]"))}


def environment(site: Path) -> dict[str, str]:
    """Return the environment of a process that finds what is installed at ``site``."""
    paths = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
    found = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    found.pop("LW2G_DISABLE_PLUGINS", None)
    return found


def lw2g(site: Path, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command with what is installed at ``site``."""
    return subprocess.run(
        [sys.executable, "-m", "lw2g", *arguments],
        cwd=cwd or site,
        env=environment(site),
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all broken plugins and a good one."""
    folder = tmp_path_factory.mktemp("site")
    for entry_point, (distribution, source, _) in BROKEN.items():
        install(folder, distribution, entry_point, source)
    install(folder, RIVAL[0], "shared", RIVAL[1])
    for entry_point, (distribution, source) in HEALTHY.items():
        install(folder, distribution, entry_point, source)
    return folder


@pytest.mark.slow
def test_each_broken_plugin_gets_one_line_and_the_others_are_listed(site: Path) -> None:
    """Distribution, version, what is wrong and what to do: one line each; the command succeeds."""
    done = lw2g(site, "plugins")
    assert done.returncode == 0, done.stderr
    listed, _, told = done.stdout.partition("problems with plugins:\n")
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    expected = {(name, part[0]): part[2] for name, part in BROKEN.items()}
    expected["shared", RIVAL[0]] = RIVAL[2]
    assert len(lines) == len(expected)
    for (name, distribution), what in expected.items():
        origin = f"plugin {name!r} ({distribution} 1.0) "
        (line,) = [line for line in lines if line.startswith(origin)]
        assert line.removeprefix(origin).startswith(what)
        _, _, remedy = line.rpartition("; ")
        assert distribution in remedy or name == "misspelt"
    assert "cautious (healthy-dist)" in listed
    names = {one["name"] for one in json.loads(lw2g(site, "plugins", "--json").stdout)}
    assert names >= {"hide-prompt", "min", "cautious", "taken-dist:min"}
    assert not names & {"same-name", "plain", "left", "right", "lost"}


@pytest.mark.slow
def test_a_run_goes_on_beside_broken_plugins(site: Path, tmp_path: Path) -> None:
    """A first-party baseline under the good stranger's policy learns glyphs; broken plugins are told."""
    small = ["baseline.epochs=1", "baseline.blocks=[2]", "benchmark.classes_per_family=2"]
    small += ["benchmark.increment=2", "benchmark.train_per_class=10", "benchmark.test_per_class=5"]
    chosen = ["--baseline", "dual-prompt", "--policy", "cautious", "--benchmark", "glyphs"]
    settings = [part for one in small for part in ("--set", one)]
    done = lw2g(site, "run", *chosen, *settings, "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    assert record["config"]["policy"]["name"] == "cautious"
    assert record["task_to_set"] == [0, 1, 2, 3, 4]
    assert "run `lw2g plugins` to see them" in done.stderr
    # from now on the run's own plugins are imported alone
    done = lw2g(site, "resume", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "plugins" not in done.stderr


@pytest.mark.slow
def test_check_tells_of_a_plugin_that_imports_torch(tmp_path: Path) -> None:
    """Its component keeps every promise; the plugin's own problem is told, and makes the exit code 1."""
    install(tmp_path, "heavy-dist", "heavy", "import torch\n" + offering("[record('weighty')]"))
    done = lw2g(tmp_path, "check", "weighty")
    assert " 0 failed" in done.stdout
    assert done.returncode == 1
    assert done.stderr.startswith("problem: plugin 'heavy' (heavy-dist 1.0) imports torch in ")
