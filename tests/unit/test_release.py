"""What a release says of itself is true, and said in one place."""

from __future__ import annotations

import configparser
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

import lw2g
from lw2g.cli.main import main

ROOT = Path(__file__).resolve().parents[2]

if not (ROOT / "pyproject.toml").exists():
    pytest.skip("needs the source tree", allow_module_level=True)

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
TESTED_EXTRA = "test"
"""The extra that runs the tests, in every environment and in the lowest one."""


def test_the_version_stands_in_one_place() -> None:
    """The build reads it from the package; the command and the citation say the same."""
    assert "version" not in PROJECT["project"]
    assert "version" in PROJECT["project"]["dynamic"]
    assert PROJECT["tool"]["hatch"]["version"]["path"] == "lw2g/__init__.py"
    assert CliRunner().invoke(main, ["--version"]).output == f"lw2g, version {lw2g.__version__}\n"
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == lw2g.__version__


def test_the_pythons_named_are_the_pythons_tested() -> None:
    """Every Python of the classifiers is allowed by ``requires-python`` and has an environment in tox."""
    named = [
        found[1]
        for one in PROJECT["project"]["classifiers"]
        if (found := re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", one))
    ]
    allowed = SpecifierSet(PROJECT["project"]["requires-python"])
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(ROOT / "tox.ini", encoding="utf-8")
    listed = re.findall(r"py(?:\{([\d,]+)\}|(\d+))", tox["tox"]["env_list"])
    tested = {version for many, one in listed for version in (many or one).split(",")}
    assert named
    assert all(f"{version}.0" in allowed for version in named)
    assert {version.replace(".", "") for version in named} == tested


def test_every_extra_that_a_message_names_exists() -> None:
    """``pip install 'lw2g[...]'`` in code and pages asks for extras that there are."""
    extras = PROJECT["project"]["optional-dependencies"]
    texts = [
        path.read_text(encoding="utf-8")
        for pattern in ("lw2g/**/*.py", "plugins/**/*.py", "docs/*.md", "*.md")
        for path in ROOT.glob(pattern)
    ]
    asked = {name for text in texts for name in re.findall(r"lw2g\[(\w+)\]", text)}
    assert asked
    assert asked <= set(extras)


def test_dependencies_state_what_they_need_and_nothing_twice() -> None:
    """Requirements parse, none is pinned, and none is stated twice in one list."""
    groups = [PROJECT["project"]["dependencies"], *PROJECT["project"]["optional-dependencies"].values()]
    for group in groups:
        wanted = [Requirement(text) for text in group]
        assert len({one.name for one in wanted}) == len(wanted)
        assert not [one for one in wanted for part in one.specifier if part.operator in ("==", "<", "<=")]


def test_the_lowest_environment_pins_every_lower_bound() -> None:
    """`tests/lowest.txt` has every dependency, those of the tests too, at its bound, and nothing else."""
    wanted = [
        Requirement(text)
        for text in (
            *PROJECT["project"]["dependencies"],
            *PROJECT["project"]["optional-dependencies"][TESTED_EXTRA],
        )
    ]
    bounds = {}
    for one in wanted:
        (bound,) = one.specifier  # each states a lower bound and nothing else
        assert bound.operator == ">=", one
        bounds[one.name] = Version(bound.version)
    lines = (ROOT / "tests" / "lowest.txt").read_text(encoding="utf-8").splitlines()
    pinned = [Requirement(line) for line in lines if line and not line.startswith("#")]
    pins = {}
    for one in pinned:
        (pin,) = one.specifier
        assert pin.operator == "==", one
        pins[one.name] = Version(pin.version)
    assert len(pins) == len(pinned)
    assert pins == bounds


def test_the_lowest_environment_is_run() -> None:
    """`tox` runs it among the others, and continuous integration too, both from the one file and extra."""
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(ROOT / "tox.ini", encoding="utf-8")
    assert "lowest" in tox["tox"]["env_list"].split(", ")
    assert tox["testenv:lowest"]["deps"] == "-r tests/lowest.txt"
    # what the environment adds to the package by default: the extra whose bounds are pinned
    assert "extras" not in tox["testenv:lowest"]
    assert tox["testenv"]["extras"] == TESTED_EXTRA
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert f'-r tests/lowest.txt ".[{TESTED_EXTRA}]"' in script
    assert re.search(r"^ruff check", script, re.MULTILINE)
    assert re.search(r"^ruff format --check", script, re.MULTILINE)
    assert re.search(r"^mypy$", script, re.MULTILINE)


def test_every_package_says_that_it_is_typed() -> None:
    """A type checker reads the annotations of lw2g and of each plugin package that it ships."""
    packages = [ROOT / "lw2g", *(path.parent for path in sorted(ROOT.glob("plugins/*/__init__.py")))]
    groups = PROJECT["project"]["entry-points"]
    offered = {module for group in ("lw2g", "lw2g.commands") for module in groups[group].values()}
    of_records = {module.partition(".")[0] for module in offered}
    # the core offers commands of its own; estimators and a function of the root are no records
    assert {path.name for path in packages} == of_records | {"lw2g_onnx", "lw2g_sklearn"}
    assert [path.name for path in packages if not (path / "py.typed").is_file()] == []
