"""Plugins and commands of strangers, in distributions of their own as pip leaves them."""

from __future__ import annotations

import sys
from importlib import invalidate_caches
from pathlib import Path

__all__ = ["COMMANDS", "commanding", "install", "offering"]

COMMANDS = "lw2g.commands"

_POLICY = """
import attrs
from lw2g.interfaces.component import PolicyComponent
from lw2g.interfaces.growth import Grow
from lw2g.registry.markers import hookimpl

@attrs.frozen(kw_only=True)
class Config:
    pass

class Policy:
    margin = 0.0
    burden = None
    def __init__(self, config): pass
    def decide(self, evidence, rng): return Grow()

def record(name, **changes):
    given = dict(config=Config, summary="always a new set", build=Policy, measures=())
    return PolicyComponent(name=name, default_constraints=(), **(given | changes))
"""


def offering(records: str, hook: str = "lw2g_policies") -> str:
    """Return the source of a plugin whose hook returns these records of policies."""
    return f"{_POLICY}\n@hookimpl\ndef {hook}():\n    return {records}\n"


def install(site: Path, distribution: str, entry_point: str, source: str, *groups: str) -> Path:
    """Write a distribution of one module with one entry point in each group, as pip leaves it.

    Without a group the module offers components. Returns the module.
    """
    module = distribution.replace("-", "_")
    file = site / f"{module}.py"
    file.write_text(source, encoding="utf-8")
    info = site / f"{module}-1.0.dist-info"
    info.mkdir(parents=True)
    about = f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n"
    (info / "METADATA").write_text(about, encoding="utf-8")
    points = "".join(f"[{group}]\n{entry_point} = {module}\n" for group in groups or ("lw2g",))
    (info / "entry_points.txt").write_text(points, encoding="utf-8")
    (info / "RECORD").write_text("", encoding="utf-8")
    # another test's module of this name is found before any file, and so is a folder as it was listed before
    sys.modules.pop(module, None)
    invalidate_caches()
    return file


def commanding(*commands: str) -> str:
    """Return the source of a module that offers commands, given as ``NAME=TARGET``."""
    records = []
    for command in commands:
        name, _, target = command.partition("=")
        records.append(f"Command(name={name!r}, help='Say {name}.', target={target!r}, group='Mine')")
    return f"""
from lw2g.interfaces.command import Command
from lw2g.registry.markers import hookimpl

@hookimpl
def lw2g_commands():
    return [{", ".join(records)}]
"""
