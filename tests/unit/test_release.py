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

import lw2g
from lw2g.cli.main import main

ROOT = Path(__file__).resolve().parents[2]

if not (ROOT / "pyproject.toml").exists():
    pytest.skip("needs the source tree", allow_module_level=True)

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_version_stands_in_one_place() -> None:
    """The build reads it from the package; the command and the citation say the same."""
    assert "version" not in PROJECT["project"]
    assert PROJECT["project"]["dynamic"] == ["version"]
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
