"""The public interface is one list, the reference page's, and all of it exists and is documented."""

from __future__ import annotations

import importlib
import inspect
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "write_reference.py"

if not SCRIPT.exists():
    pytest.skip("needs the source tree", allow_module_level=True)


@pytest.fixture(scope="module")
def script() -> Iterator[dict[str, Any]]:
    """The script's names, with its neighbours importable meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SCRIPT.parent))
        yield runpy.run_path(str(SCRIPT))


def module_of(path: str) -> Any:
    """Import a module by its file."""
    return importlib.import_module(path.removesuffix(".py").removesuffix("/__init__").replace("/", "."))


def undocumented(name: str, thing: Any) -> Iterator[str]:
    """Yield a class or function, or the public methods of a class, that have no docstring of their own."""
    if not (inspect.isclass(thing) or inspect.isfunction(thing)):
        return
    if not (thing.__doc__ or "").strip() or (inspect.isclass(thing) and "__doc__" not in vars(thing)):
        yield name
    for attribute, value in vars(thing).items() if inspect.isclass(thing) else ():
        function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        if not attribute.startswith("_") and inspect.isfunction(function) and not function.__doc__:
            yield f"{name}.{attribute}"


def unexplained(name: str, thing: Any) -> Iterator[str]:
    """Yield what an ``Args`` section names that the function does not take."""
    if not inspect.isfunction(thing) or "Args:\n" not in (thing.__doc__ or ""):
        return
    section = inspect.cleandoc(thing.__doc__).split("Args:\n", 1)[1].split("\n\n")[0]
    for line in section.splitlines():
        if line.startswith("    ") and not line.startswith("     "):
            named = {one.strip().lstrip("*") for one in line.partition(":")[0].split(",")}
            yield from (f"{name}: {one}" for one in named - set(inspect.signature(thing).parameters))


def test_every_public_name_exists_and_is_documented(script: dict[str, Any]) -> None:
    """What ``__all__`` of a public module promises is there and has a docstring, its methods too."""
    faults = []
    for path in script["PUBLIC"]:
        module = module_of(path)
        assert module.__doc__, path
        for name in module.__all__:
            thing = getattr(module, name)
            faults += [*undocumented(f"{path}: {name}", thing), *unexplained(f"{path}: {name}", thing)]
    assert faults == []


def test_a_name_means_one_thing(script: dict[str, Any]) -> None:
    """No two public modules give one class name to different classes."""
    found: dict[str, Any] = {}
    for path in script["PUBLIC"]:
        module = module_of(path)
        for name in module.__all__:
            thing = getattr(module, name)
            if inspect.isclass(thing):
                assert found.setdefault(name, thing) is thing, f"{path}: {name}"


def test_every_module_of_a_public_package_is_public_or_said_not_to_be(script: dict[str, Any]) -> None:
    """A new module cannot be forgotten on the reference page."""
    packages = [ROOT / "lw2g" / name for name in ("interfaces", "blocks", "inputs", "vit", "geometry")]
    there = {
        path.relative_to(ROOT).as_posix()
        for package in packages
        for path in package.glob("*.py")
        if path.name != "__init__.py"
    }
    assert there - set(script["PUBLIC"]) == set(script["INTERNAL"])
