"""docs/plugins.md: every command of the page works, word for word and in order, and so does its code."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from lw2g.api.plugins import new_plugin
from lw2g.blocks.presets import PresetFile
from lw2g.testing import contract_cases
from lw2g_testing.small_run import learned

PAGE = Path(__file__).resolve().parents[2] / "docs" / "plugins.md"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PAGE.exists(), reason="needs the source tree"),
    pytest.mark.skipif(os.name == "nt", reason="the page is written for a POSIX shell"),
]


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Let no test import the package of the page that another one has written."""
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "my_method"]:
        del sys.modules[name]


def blocks(language: str) -> list[str]:
    """Return the page's blocks of code in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(encoding="utf-8"), flags=re.S | re.M)


def environment_beside(folder: Path) -> dict[str, str]:
    """Make an environment that sees all installed packages, so that nothing is downloaded or left behind."""
    home = folder / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True, timeout=300)
    (site,) = home.glob("lib/python*/site-packages")
    here = sysconfig.get_path("purelib")
    (site / "beside.pth").write_text(f"import site; site.addsitedir({here!r})\n", encoding="utf-8")
    script = home / "bin" / "lw2g"
    script.write_text(f"#!{home}/bin/python\nfrom lw2g.cli.main import main\nmain()\n", encoding="utf-8")
    script.chmod(0o755)
    return os.environ | {
        "PATH": f"{home}/bin{os.pathsep}{os.environ['PATH']}",
        "VIRTUAL_ENV": str(home),
        "OMP_NUM_THREADS": "1",
        "PIP_NO_INDEX": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # for pip, the environment's 0 means: no isolation
    }


@pytest.mark.slow(seconds=150)
def test_every_command_of_the_page_works(tmp_path: Path) -> None:
    """From an empty folder to checked plugins and runs with LW2G on them."""
    listed = [line for block in blocks("sh") for line in block.splitlines() if line.strip()]
    assert len(listed) > 10
    environment = environment_beside(tmp_path)
    for command in listed:
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=tmp_path,
            env=environment,
            check=False,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        if command == "lw2g plugins my-method":
            assert "baseline my-method" in done.stdout
            assert "problems with plugins" not in done.stdout
    record = json.loads((tmp_path / "runs" / "min" / "record.json").read_text(encoding="utf-8"))
    candidates = [candidate for decision in record["decisions"][1:] for candidate in decision["candidates"]]
    values = [candidate["measures"]["hindrance"]["value"] for candidate in candidates]
    assert values
    assert None not in values
    assert (tmp_path / "runs" / "mine" / "record.json").exists()
    for code in blocks("python"):
        path, _, excerpt = code.partition("\n")
        assert excerpt in (tmp_path / path.removeprefix("# ")).read_text(encoding="utf-8")


def test_the_loss_of_the_page_runs(tmp_path: Path) -> None:
    """The first block is a program that learns digits and prints what it has reached."""
    program, _ = blocks("py")
    (tmp_path / "mine.py").write_text(program, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "mine.py"], cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("<run 'runs/")


def test_the_phase_of_the_page_computes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example behind the page's method learns, resumes, and leaves means of length 1 in its head."""
    monkeypatch.chdir(tmp_path)
    new_plugin("my-method", kind="baseline")
    monkeypatch.syspath_prepend(tmp_path / "my-method" / "src")
    baseline = importlib.import_module("my_method.baseline")
    _, code = blocks("py")
    space = dict(vars(baseline))
    exec(compile(code, "plugins.md", "exec", dont_inherit=True), space)
    component = importlib.import_module("my_method.plugin").COMPONENT
    own = attrs.evolve(component, name="with-means", build=space["WithMeans"])
    cases = {case.check.name: case for case in contract_cases(own)}
    for name in ("learns_a_small_stream", "resumes_to_the_same_bits"):
        cases[name].run()
    head = learned(cases["learns_a_small_stream"].subject).session.parts.baseline.head
    assert head.weight.norm(dim=1).tolist() == pytest.approx([1.0] * len(head.weight))


def test_the_presets_of_the_page_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file that the page shows has official and tuned values, on rows that exist."""
    (code,) = blocks("toml")
    package = tmp_path / "my_method"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "presets.toml").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    presets = PresetFile("my_method")
    official, tuned = presets.official("my-method"), presets.tuned("my-method")
    assert official["imagenet-r"].items() >= {"backbone.name": "sup21k", "baseline.lr": 0.03}.items()
    assert "benchmark.order" in official["cifar100"]
    assert tuned["digits"] == {"baseline.epochs": 10}


def test_the_code_of_the_page_is_typed(tmp_path: Path) -> None:
    """The package that the page writes says py.typed, and stays so with the example behind its method."""
    pytest.importorskip("mypy")
    new_plugin("my-method", kind="baseline", out=tmp_path / "my-method")
    _, code = blocks("py")
    with (tmp_path / "my-method" / "src" / "my_method" / "baseline.py").open(
        "a", encoding="utf-8"
    ) as written:
        written.write(code)
    command = [sys.executable, "-m", "mypy", "--strict", "src"]
    done = subprocess.run(
        command, cwd=tmp_path / "my-method", capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
