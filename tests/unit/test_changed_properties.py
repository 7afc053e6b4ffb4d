"""Which properties continuous integration draws anew."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]

if not (ROOT / "scripts" / "changed_properties.py").exists():
    pytest.skip("needs the source tree", allow_module_level=True)


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location(
        "changed_properties", ROOT / "scripts" / "changed_properties.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CASES = (
    (
        "lw2g/maths/subspace.py",
        {"tests/property/test_subspace.py", "tests/property/test_hindrance.py"},
        True,
    ),
    ("plugins/lw2g_growth/policies.py", {"tests/property/test_policies.py"}, True),
    ("tests/property/test_gate.py", {"tests/property/test_gate.py"}, True),
    ("lw2g/maths/metrics.py", {"tests/property/test_gate.py"}, False),
    ("docs/start.md", {"tests/property/test_subspace.py"}, False),
)
"""A file that changed, modules of tests, and whether it chooses them."""


@pytest.mark.parametrize(("file", "modules", "expected"), CASES, ids=[case[0] for case in CASES])
def test_a_change_chooses_the_properties_that_rest_on_it(
    file: str, modules: set[str], expected: bool, script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What imports the changed floor or plugin is chosen, what does not is left out."""
    monkeypatch.setattr(script, "changed_packages", lambda commit: {script._package(file)})
    found = set(script.chosen("v1"))
    assert modules <= found if expected else not modules & found


def test_what_all_tests_share_chooses_all(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change of the profiles of hypothesis leaves no property out, nor does a missing release."""
    everything = script.chosen("")
    assert len(everything) > 20
    monkeypatch.setattr(script, "changed_packages", lambda commit: {script._package("tests/conftest.py")})
    assert script.chosen("v1") == everything


def test_a_commit_that_changed_nothing_chooses_nothing(script: ModuleType) -> None:
    """The difference is asked of git itself."""
    if subprocess.run(["git", "-C", str(ROOT), "diff", "--quiet", "HEAD"], check=False).returncode:
        pytest.skip("the checkout has changes, or is none")
    assert script.chosen("HEAD") == []
