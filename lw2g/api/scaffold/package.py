"""Writes a package for a name and a kind; it installs and passes its tests.

A template is a plain file ``templates/<common, component, grid or kind>/.../FILE.tmpl`` with placeholders of
``string.Template`` such as ``$name``; in its path, the folder ``package`` stands for the import package.
"""

from __future__ import annotations

import importlib.util
import keyword
import re
from collections.abc import Collection, Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path, PurePath, PurePosixPath
from string import Template
from typing import Literal

import attrs

from lw2g import __version__
from lw2g.errors import ConfigError
from lw2g.interfaces.command import Command
from lw2g.interfaces.component import Kind
from lw2g.registry.catalogue import Catalogue
from lw2g.registry.kinds import COMMAND_HOOK, HOOKS, HOOKS_BY_GROUP

__all__ = ["GRID", "SCAFFOLDED", "Scaffold", "check_name", "write_package"]

GRID = "grid.toml"
"""The file with the standard rows of a component: itself, and the methods that it has to beat."""
_SUFFIX = ".tmpl"
_QUICK = "--benchmark digits --set baseline.epochs=1"
"""What makes a run short."""
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


@attrs.frozen(kw_only=True)
class _Rival:
    """The row of the grid that trains, which a component has to beat.

    Attributes:
        words: What it is.
        row: The row in TOML.
    """

    words: str
    row: str


_TRAINED = _Rival(
    words="the method of --trained",
    row='label = "trained"\nbaseline = { name = "slca-plus-plus", head = "auto", trained_tasks = 1 }',
)
_GATED = _Rival(
    words="the same method under the carry gated",
    row='label = "gated"\n'
    'baseline = { name = "slca-plus-plus", head = "lda", head_carry = "gated" }\n'
    'routing = { expert = "frozen" }',
)


@attrs.frozen(kw_only=True)
class _Example:
    """What is said of a template's component.

    Attributes:
        summary: Its summary.
        run: A command that uses it.
        printed: A command that prints what it gives; empty where the run shows that.
        row: Its row in the grid of standard rows, in TOML; empty for a kind without a grid.
        rival: The row there that trains.
    """

    summary: str
    run: str
    printed: str = ""
    row: str = ""
    rival: _Rival = _TRAINED


SCAFFOLDED: Mapping[str, _Example] = {
    "baseline": _Example(
        summary="one prefix per parameter set and one linear head",
        run=f"lw2g run --baseline $name --policy min {_QUICK}",
        row='baseline = "$name"\npolicy = "always"  # a set a task, and no constraint\n'
        '# policy = "min"  # LW2G\'s rule: grow or reuse, under its constraints',
    ),
    "head": _Example(
        summary="the nearest class mean, each dimension in units of its deviation within classes",
        run="lw2g run --baseline simple-cil --set baseline.head=$name --benchmark digits",
        row='baseline = { name = "simple-cil", head = "$name" }',
    ),
    "carry": _Example(
        summary="old classes go as far as the new task's images did on average",
        run="lw2g run --baseline slca-plus-plus --set baseline.head=lda --set baseline.head_carry=$name "
        f"{_QUICK}",
        row='baseline = { name = "slca-plus-plus", head = "lda", head_carry = "$name" }\n'
        'routing = { expert = "frozen" }',
        rival=_GATED,
    ),
    "policy": _Example(
        summary="the paper's rule for growth, with a bound on the number of sets",
        run=f"lw2g run --policy $name {_QUICK}",
    ),
    "evidence": _Example(
        summary="cosine of the new task's mean feature with that of a set's tasks",
        run=f"lw2g run --policy threshold --set policy.measure=$name --set policy.scale=value {_QUICK}",
    ),
    "constraint": _Example(
        summary="a reused set gives up part of its motion inside the space of its old tasks",
        run=f"lw2g run --policy min --constraint $name {_QUICK}",
    ),
    "retrieval": _Example(
        summary="the nearest mean of the tasks' un-prompted features",
        run=f"lw2g run --retrieval $name {_QUICK}",
    ),
    "benchmark": _Example(
        summary="stripes in noise, one direction and width per class", run="lw2g run --benchmark $name"
    ),
    "backbone": _Example(
        summary="a small ViT of timm, with random weights, published ones or those of a file",
        run=f"lw2g run --backbone $name {_QUICK}",
    ),
    "tracker": _Example(
        summary="each event of a run as a line of a file", run="lw2g run --benchmark digits --tracker $name"
    ),
    "metric": _Example(
        summary="accuracy on the task that has the lowest one after the last task",
        run="lw2g run --baseline simple-cil --benchmark digits --out runs/$name",
        printed="lw2g report runs/$name",
    ),
}
"""The kinds of components with a template."""

_EXAMPLES: Mapping[str, _Example] = {
    **SCAFFOLDED,
    "command": _Example(summary="the runs below a folder with the highest accuracy", run="lw2g $name runs"),
}


@attrs.frozen(kw_only=True)
class Scaffold:
    """A package to write.

    Attributes:
        name: Name of the component or command, the distribution and the folder.
        kind: Kind of the component, or ``command``.
    """

    name: str
    kind: Kind | Literal["command"]

    @property
    def package(self) -> str:
        """Name of the import package and of the entry point."""
        return self.name.replace("-", "_")

    @property
    def run(self) -> str:
        """A command that uses what the package offers."""
        return self._named(_EXAMPLES[self.kind].run)

    def next_steps(self, folder: PurePath) -> list[str]:
        """Return the commands that use the component, for the package in a folder."""
        # a command has no contract to keep
        checks = [f"lw2g check {self.name}"] if self.kind in SCAFFOLDED else []
        commands = [*checks, self.run]
        if _EXAMPLES[self.kind].printed:
            commands.append(self._named(_EXAMPLES[self.kind].printed))
        if _EXAMPLES[self.kind].row:
            commands.append(f'lw2g sweep "{folder / GRID}" --out runs/{self.name}')
        return commands

    def _named(self, text: str) -> str:
        """Return a text of the example with the component's name in it."""
        return Template(text).substitute(name=self.name)

    def files(self) -> Iterator[tuple[PurePosixPath, str]]:
        """Yield the path of each file, relative to the package's folder, and its text."""
        values = self._values()
        # what all packages have, what those of this kind have, and then what several kinds share
        folders = ["common", self.kind]
        if self.kind in SCAFFOLDED:  # all kinds but a command
            folders.append("component")
        if _EXAMPLES[self.kind].row:
            folders.append("grid")
        root = files(__package__) / "templates"
        for folder in folders:
            for template_path, template in _templates(root / folder, PurePosixPath()):
                # a folder named "package" stands for the import package
                parts = [self.package if part == "package" else part for part in template_path.parts]
                text = Template(template.read_text(encoding="utf-8")).substitute(values)
                yield PurePosixPath(*parts), text

    def _values(self) -> dict[str, str]:
        """Return the value of each placeholder of the templates."""
        hooks: dict[str, tuple[str, type]] = {record.kind: (hook, record) for hook, record in HOOKS.items()}
        hooks["command"] = (COMMAND_HOOK, Command)
        hook, record = hooks[self.kind]
        (group,) = [group for group, called in HOOKS_BY_GROUP.items() if hook in called]
        words = self.name.split("-")
        return {
            "name": self.name,
            "kind": self.kind,
            "package": self.package,
            "camel": "".join(word.capitalize() for word in words),
            "title": " ".join(words).capitalize(),
            "summary": _EXAMPLES[self.kind].summary,
            "row": self._named(_EXAMPLES[self.kind].row),
            "rival": _EXAMPLES[self.kind].rival.row,
            "rival_is": _EXAMPLES[self.kind].rival.words,
            "steps": "\n    ".join(self.next_steps(PurePosixPath())),
            "hook": hook,
            "group": group,
            "record": record.__name__,
            "version": __version__,
        }


def _templates(folder: Traversable, path: PurePosixPath) -> Iterator[tuple[PurePosixPath, Traversable]]:
    """Yield the templates in and below a folder; before each, where its file goes, below ``path``."""
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _templates(entry, path / entry.name)
        elif entry.name.endswith(_SUFFIX):
            yield path / entry.name.removesuffix(_SUFFIX), entry


def check_name(
    name: str, catalogue: Catalogue, plugins: Collection[str] | None = None, commands: Collection[str] = ()
) -> None:
    """Refuse a name that a new component or command, package and plugin cannot have.

    Args:
        name: The wanted name.
        catalogue: The installed components.
        plugins: Names of the installed plugins' entry points; None reads them from the environment.
        commands: Names that a new command cannot have.

    Raises:
        ConfigError: It is not kebab-case, or is taken.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"plugin name {name!r} is not kebab-case",
            f"use lower-case words joined by hyphens, such as {_kebab(name)!r}",
        )
    for entry in catalogue.components():
        if entry.component.name == name:
            owner = f"a {entry.component.kind} of {entry.origin}"
            raise ConfigError(f"plugin name {name!r} is taken by {owner}", "choose another one")
    if name in commands:
        raise ConfigError(f"plugin name {name!r} is taken by a command", "choose another one")
    package = name.replace("-", "_")
    if plugins is None:
        installed = [entry_point for group in HOOKS_BY_GROUP for entry_point in entry_points(group=group)]
        plugins = {entry_point.name for entry_point in installed if not _is_replaced(entry_point, name)}
    # two entry points of one name: the manager would keep one of them
    if package in plugins:
        owner = f"a plugin is called {package!r}"
    # a package of this name would hide the other one, or could not be imported at all
    elif keyword.iskeyword(package) or importlib.util.find_spec(package) is not None:
        owner = f"Python knows {package!r} already"
    else:
        return
    raise ConfigError(f"plugin name {name!r} is taken: {owner}", "choose another one")


def _is_replaced(entry_point: EntryPoint, name: str) -> bool:
    """Whether a plugin's files are gone, and installing a new package of this name replaces its entry."""
    if entry_point.dist is None or entry_point.dist.name.replace("_", "-") != name:
        return False
    return importlib.util.find_spec(entry_point.module.partition(".")[0]) is None


def _kebab(name: str) -> str:
    """Return a legal name that resembles the given one.

    >>> _kebab("MyMethod 2")
    'my-method-2'
    """
    # a hyphen before a capital letter: the words of "MyMethod" are two
    with_hyphens = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name)
    kebab = "-".join(re.findall(r"[a-z0-9]+", with_hyphens.lower()))
    if not _NAME.fullmatch(kebab):  # it begins with a digit, or nothing is left
        return "my-method"
    return kebab


def write_package(scaffold: Scaffold, directory: Path) -> list[Path]:
    """Write the package and return the paths of its files.

    Raises:
        ConfigError: The directory is a file or not empty, or cannot be written.
    """
    if directory.exists() and not directory.is_dir():
        raise ConfigError(f"{str(directory)!r} is a file", "choose another --out")
    if directory.exists() and any(directory.iterdir()):
        raise ConfigError(f"{str(directory)!r} is not empty", "choose another --out")
    written = []
    try:
        contents = list(scaffold.files())  # all of them before the first is written: a template may fail
        for path, text in contents:
            target = directory / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8", newline="\n")
            written.append(target)
    except OSError as error:
        raise ConfigError(
            f"{str(directory)!r} cannot be written ({error.strerror})", "choose another --out"
        ) from error
    return written
