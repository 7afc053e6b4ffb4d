"""Grids: from one TOML file to the cells of a sweep, each a configuration named by the hash of its settings.

A grid has three parts. ``[base]`` is a configuration that all cells share. ``[[rows]]`` are alternatives with
their own settings. ``[axes]`` are lists of values that multiply the rows; a row that sets an axis's option
itself is not multiplied by it, and a row's own ``axes`` replace or join the grid's. Settings are written as
in a configuration, or short: ``baseline = "hide-prompt"``, ``seed = 1``, ``constraints = ["pgp"]``. Where a
row or an axis names another component than the base, it starts from that one's own preset: it keeps none of
the options that the base gave the other one. A grid that ``extends`` another one puts its own base and axes
over the other's, and its rows after those.
``[executor]`` says where the cells run (:mod:`lw2g.sweeps.executors`), ``[report]`` the columns of the table;
neither is part of their settings.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import attrs

from lw2g.config.describe import hint_of_places, meant_elsewhere
from lw2g.config.layers import GOAL, NO_GOAL_IN_FILES, SECTIONS, SHORT, nest, written_out
from lw2g.config.roles import keys_of_role
from lw2g.config.structure import NONE
from lw2g.config.toml import read_toml
from lw2g.errors import ConfigError, as_word, counted, nearest, shown
from lw2g.ground.notes import tell_note_once
from lw2g.interfaces.tables import leaves
from lw2g.registry.catalogue import Catalogue, load_catalogue
from lw2g.results.columns import chosen_columns, further_columns

__all__ = [
    "Cell",
    "Settings",
    "over",
    "read_columns",
    "read_executor",
    "read_grid",
    "settings_of",
]

Settings = dict[str, Any]
"""Values by dotted keys."""

_PARTS = ("base", "axes", "rows", "extends", "executor", "report")
_SEED = "run.seed"
_FORM = f"write options as SECTION.OPTION = VALUE, of the sections {', '.join(SECTIONS)}"
_REPORT_FORM = '[report] has columns alone, as ["faa", "ffm"]; rows are compared by lw2g report --against ROW'
_NAMES = tuple(key for key in SHORT.values() if key.endswith(".name"))
"""Keys that name the component of a section which has one."""
_ORDER = {"baseline.name": 0, "policy.name": 1, "retrieval.name": 2, "constraints": 3}
_DIGITS = 12
_LONGEST = 40


@attrs.frozen(kw_only=True)
class Cell:
    """One configuration of a grid.

    Attributes:
        settings: The settings that the grid gives it, by dotted keys; no defaults.
        label: A short text that distinguishes it from the other cells.
        row: The name of its row in reports: the label that the grid gives, and the values of axes but the
            seed; empty where the grid gives none.
    """

    settings: Mapping[str, Any]
    label: str
    row: str = ""

    @property
    def name(self) -> str:
        """The name of its directory: baseline and policy where the grid names them, and a hash.

        The hash covers only what the grid sets, so that an option added to lw2g later moves no directory.
        """
        parts = []
        for key in ("baseline.name", "policy.name"):
            if key in self.settings:
                parts.append(re.sub(r"[^\w.-]", "_", str(self.settings[key])))
        content = json.dumps(self.settings, sort_keys=True, separators=(",", ":"))
        parts.append(hashlib.sha256(content.encode()).hexdigest()[:_DIGITS])
        return "-".join(parts)

    def tables(self) -> dict[str, Any]:
        """Return the settings as the nested tables of a configuration file.

        Raises:
            ConfigError: A key is not one of a configuration.
        """
        settings = dict(self.settings)
        settings.pop("constraints", None)  # their names; the options of some are settings of their own
        problems: list[str] = []
        tables = nest(settings, problems)
        names = self.settings.get("constraints", ())
        lost = tables.get("constraints", {}).keys() - set(names)
        if lost:
            problems.append(
                f"constraints: options for {', '.join(sorted(lost))}, which is not in use; name all in use: "
                "constraints = [...]"
            )
        if problems:
            raise ConfigError("; ".join(problems))
        if "constraints" in self.settings:
            options = tables.get("constraints", {})
            # an empty table would mean the policy's own constraints
            tables["constraints"] = {name: options.get(name, {}) for name in names} or NONE
        return tables


def _unchanged(settings: Settings) -> Settings:
    return settings


def read_grid(
    path: Path | Mapping[str, Any],
    overrides: Mapping[str, Any] | None = None,
    change: Callable[[Settings], Settings] = _unchanged,
    catalogue: Catalogue | None = None,
) -> list[Cell]:
    """Return the cells of a grid: rows in their order, first all with the first seed, then the second, ...

    Cells that become equal are one, and a note says how many are left out so.

    Args:
        path: A TOML file, or what one holds.
        overrides: Settings of every cell, which override the grid's.
        change: Makes the settings of each cell from those that the grid and the overrides give.
        catalogue: Knows over which options rows of a report are means; None for all installed components.

    Raises:
        ConfigError: The file is not a valid grid.
    """
    grid = _read(path, ())
    if grid.columns:  # a table is made when all cells have run: too late for a misspelt name
        further = further_columns((), catalogue or load_catalogue())
        chosen_columns(grid.columns, further, "report.columns")
    if not (grid.base or grid.axes or grid.rows):
        raise ConfigError(f"{str(_path_of(path))!r} has no cells", "give it [base], [axes] or [[rows]]")
    last = settings_of(overrides or {}, "--set")
    drafts: dict[str, _Draft] = {}
    num_equal = 0
    for row in grid.rows or [_Row()]:
        for draft in _cells(row, grid, last, change):
            num_equal += json.dumps(draft.settings, sort_keys=True) in drafts
            drafts.setdefault(json.dumps(draft.settings, sort_keys=True), draft)
    if not drafts:
        raise ConfigError(f"{str(_path_of(path))!r} has no cells", "an axis is empty")
    if num_equal and change is _unchanged:  # a rehearsal makes cells equal on purpose
        equal = f"{counted(num_equal, 'cell')} equal to others of the grid, run once"
        tell_note_once(f"{str(_path_of(path))!r}: {equal}")
    # an option may be idle in cells of one row, and used in those of another; idle in all it is a mistake
    idle = {key for draft in drafts.values() for key in draft.idle}
    used = {key for draft in drafts.values() for key in draft.settings}
    if idle - used:
        raise ConfigError(f"{min(idle - used)}: no cell uses that constraint", "name it: constraints = [...]")
    # a stable sort: within a seed, cells stay in the order of the rows
    ordered = sorted(drafts.values(), key=lambda draft: draft.turn)
    drawn = frozenset[str]()
    if any(draft.label for draft in ordered):  # others have no row of their own
        drawn = keys_of_role("draw", catalogue or load_catalogue())
    return _labelled(ordered, drawn)


def read_executor(path: Path | Mapping[str, Any]) -> Settings:
    """Return the executor's settings in a grid, which may be empty.

    Raises:
        ConfigError: The file is not a valid grid.
    """
    return _read(path, ()).executor


def read_columns(path: Path | Mapping[str, Any]) -> str | None:
    """Return the columns of a grid's table as ``lw2g report --columns`` takes them; None for the usual ones.

    Raises:
        ConfigError: The file is not a valid grid.
    """
    return _read(path, ()).columns or None


@attrs.frozen(kw_only=True)
class _Row:
    """A row of a grid."""

    settings: Settings = attrs.field(factory=dict)
    axes: dict[str, list[Settings]] = attrs.field(factory=dict)
    label: str = ""


@attrs.frozen(kw_only=True)
class _Grid:
    """The content of a grid file together with the files it extends."""

    base: Settings
    axes: dict[str, list[Settings]]
    rows: list[_Row]
    executor: Settings
    columns: str


def _read(given: Path | Mapping[str, Any], before: tuple[Path, ...]) -> _Grid:
    """Read a grid, a file or what one holds; ``before`` are the files that extend it."""
    path = _path_of(given)
    if path.resolve() in before:
        raise ConfigError(f"{str(path)!r} extends itself", "remove one `extends`")
    if given is path and path.is_dir():
        raise ConfigError(f"{str(path)!r} is a folder and no grid", "give the path of a TOML file")
    table = read_toml(given, "lw2g sweep --help") if isinstance(given, Path) else given
    unknown = sorted(table.keys() - {*_PARTS})
    if not table.keys() & {*_PARTS} and table.keys() & {*SECTIONS}:
        raise ConfigError(
            f"{str(path)!r} is the file of a run and no grid",
            f"lw2g run {as_word(path)} runs it; in a grid its tables stand in [base], as [base.baseline]",
        )
    if unknown:
        raise ConfigError(
            f"{str(path)!r}: {unknown[0]!r} is not a part of a grid{nearest(unknown[0], _PARTS)}",
            "a grid has [base], [axes], [[rows]], [executor], [report] and extends",
        )
    rows = table.get("rows", [])
    if not isinstance(rows, list):
        raise ConfigError("rows: expected tables [[rows]]", "write two brackets")
    if "rows" in table and not rows:
        raise ConfigError("rows: expected tables [[rows]] but got none", "leave rows out for [base] alone")
    parsed = [_row(_table(row, f"rows {n}"), f"rows {n}") for n, row in enumerate(rows, 1)]
    grid = _Grid(
        base=settings_of(_table(table.get("base", {}), "base"), "base"),
        axes=_axes(_table(table.get("axes", {}), "axes"), "axes"),
        rows=parsed,
        executor=dict(_table(table.get("executor", {}), "executor")),
        columns=_columns_of(_table(table.get("report", {}), "report")),
    )
    if "extends" not in table:
        return grid
    other = _read(path.parent / str(table["extends"]), (*before, path.resolve()))
    return _Grid(
        base=over(other.base, grid.base),
        axes=other.axes | grid.axes,
        rows=other.rows + grid.rows,
        executor=grid.executor or other.executor,
        columns=grid.columns or other.columns,
    )


def _columns_of(report: Mapping[str, Any]) -> str:
    """Return the columns that ``[report]`` names, which has no other key; empty where it names none."""
    for key in report.keys() - {"columns"}:
        raise ConfigError(f"report: no such key {key!r}{nearest(key, ['columns'])}", _REPORT_FORM)
    columns = report.get("columns", "")
    names = columns if isinstance(columns, list) else [columns]
    if not all(isinstance(name, str) for name in names):
        raise ConfigError(f"report.columns: expected names but got {shown(columns)}", _REPORT_FORM)
    return ",".join(names)


def _row(row: Mapping[str, Any], where: str) -> _Row:
    """Return a row of a grid, whose other keys are settings."""
    settings = dict(row)
    settings.pop("label", None)
    settings.pop("axes", None)
    return _Row(
        settings=settings_of(settings, where, ("label", "axes")),
        axes=_axes(_table(row.get("axes", {}), f"{where}.axes"), f"{where}.axes"),
        label=str(row.get("label", "")),
    )


@attrs.frozen(kw_only=True)
class _Draft:
    """A cell without its label.

    Attributes:
        settings: Its settings.
        turn: The position of its seed among the seeds of its row.
        label: The row's label; may be empty.
        own: Keys that the row sets.
        varied: Keys that axes set.
        idle: Options of constraints that the cell does not use; the settings leave them out.
    """

    settings: Settings
    turn: int
    label: str
    own: tuple[str, ...]
    varied: tuple[str, ...]
    idle: tuple[str, ...]

    def words(self, *, whole: bool) -> str:
        """Return a label: the row's own or its names, then axis values; ``whole``: all that the row sets."""
        keys: list[str] = []
        if whole:
            keys += self.own
        elif not self.label:  # which stands for what the row sets
            keys += filter(_is_a_name, self.own)
        keys += self.varied
        words = [_in_words(key, self.settings[key]) for key in sorted(dict.fromkeys(keys), key=_place)]
        return ", ".join(filter(None, [self.label, *words]))

    def row(self, left_out: Set[str]) -> str:
        """Return the name of the row in reports, but what is drawn or all have alike; empty unlabelled."""
        if not self.label:
            return ""
        words = [self.label]
        for key in self.varied:
            if key not in left_out:
                words.append(_in_words(key, self.settings[key]))
        return ", ".join(words)


def _place(key: str) -> tuple[bool, int]:
    """Return the place of a key in a label: components first, the seed last."""
    return key == _SEED, _ORDER.get(key, len(_ORDER))


def _labelled(drafts: Sequence[_Draft], drawn: Set[str]) -> list[Cell]:
    """Return the cells, each with the shortest label that distinguishes it."""
    counts = Counter(draft.words(whole=False) for draft in drafts)
    alike = _alike_in(drafts)
    cells = []
    places = []  # row, data and draws of each cell
    for draft in drafts:
        words = draft.words(whole=counts[draft.words(whole=False)] > 1)
        cells.append(Cell(settings=draft.settings, label=words or "base", row=draft.row(drawn | alike)))
        held = {key: draft.settings[key] for key in draft.settings if key in drawn or "benchmark." in key}
        if draft.label and (cells[-1].row, held) in places:
            tell_note_once(
                f"two rows of the grid are called {draft.label!r}; a report leaves such a label out"
            )
        places.append((cells[-1].row, held))
    return cells


def _alike_in(drafts: Sequence[_Draft]) -> set[str]:
    """Return the keys that all cells have alike: an axis of one value tells no row from another."""
    first = drafts[0].settings
    return {key for key in first if all(draft.settings.get(key) == first[key] for draft in drafts)}


def _cells(
    row: _Row, grid: _Grid, last: Settings, change: Callable[[Settings], Settings]
) -> Iterator[_Draft]:
    """Yield the cells of a row: one for each combination of values of its axes.

    Args:
        row: The row.
        grid: Its grid.
        last: Settings that override all others.
        change: Changes the settings of a cell.
    """
    # what a row sets does not vary in it; its own axes replace the grid's of that name
    axes = {key: values for key, values in grid.axes.items() if key not in row.settings} | row.axes
    for values in itertools.product(*(enumerate(values) for values in axes.values())):
        varied: Settings = {}
        turn = 0  # the place of its seed on the axis of seeds
        for key, (place, value) in zip(axes, values, strict=True):
            varied |= value
            if key == _SEED:
                turn = place
        settings = over(grid.base, row.settings)
        settings = over(settings, varied)
        settings = over(settings, last)
        settings = change(settings)
        idle = [key for key in settings if _is_idle(key, settings.get("constraints"))]
        kept = {key: value for key, value in settings.items() if key not in idle}
        yield _Draft(
            settings=kept,
            turn=turn,
            label=row.label,
            own=tuple(key for key in row.settings if key in kept),
            varied=tuple(key for key in varied if key in kept),
            idle=tuple(idle),
        )


def over(below: Settings, above: Settings) -> Settings:
    """Return settings with others over them; where these change a component, the old one's options go.

    An option of another component would be refused, or taken silently where both have one of that name.
    Options given without a component's name are of every component that the grid names.
    """
    kept = below
    for name in _NAMES:
        if name in below and above.get(name, below[name]) != below[name]:
            section = name.removesuffix("name")  # with its dot
            kept = {key: value for key, value in kept.items() if not key.startswith(section)}
    return kept | above


def _is_idle(key: str, used: Sequence[str] | None) -> bool:
    """Whether a key is an option of a constraint that is not among those in use."""
    section, _, option = key.partition(".")
    if section != "constraints" or not option or used is None:  # None: the policy's own, not known here
        return False
    return option.partition(".")[0] not in used


def _is_a_name(key: str) -> bool:
    return key.endswith(".name") or key == "constraints"


def _in_words(key: str, value: Any) -> str:
    """Return a setting as text: a name alone, another value after the last part of its key."""
    if key == "constraints":
        return "+".join(value) or "no constraints"
    text = str(value)
    if len(text) > _LONGEST:
        text = f"{text[: _LONGEST - 3]}..."
    if _is_a_name(key):
        return text
    return f"{key.rpartition('.')[2]} {text}"


def _axes(table: Mapping[str, Any], where: str) -> dict[str, list[Settings]]:
    """Return the settings of each value of each axis, by the axis's dotted key."""
    axes: dict[str, list[Settings]] = {}
    for key, values in leaves(table):
        if not isinstance(values, list):
            raise ConfigError(f"{where}.{key}: expected a list of values but got {shown(values)}")
        settings = [settings_of({key: value}, f"{where}.{key}") for value in values]
        if any(one in settings[:place] for place, one in enumerate(settings)):
            raise ConfigError(f"{where}.{key}: expected different values but got {shown(values)}")
        axes[SHORT.get(key, key)] = settings
    return axes


def settings_of(table: Mapping[str, Any], where: str, others: Sequence[str] = ()) -> Settings:
    """Return nested, dotted or short settings by dotted keys; ``constraints`` lists those in use.

    An unknown key may have been meant for one of ``others``.

    Raises:
        ConfigError: A key is not one of a configuration.
    """
    settings: Settings = {}
    for key, value in leaves(table):
        if isinstance(value, list) and key in (*SHORT, *SHORT.values()):
            raise ConfigError(f"{where}.{key}: got a list", f"to multiply: axes = {{{key} = [...]}}")
    for key, value in table.items():
        if key == GOAL:
            raise ConfigError(f"{where}: {NO_GOAL_IN_FILES}")
        if key.partition(".")[0] not in SECTIONS and key not in SHORT:
            catalogue = load_catalogue()
            if meant := meant_elsewhere(key, catalogue):
                raise ConfigError(f"{where}: no such option {key!r}", meant)
            hint = hint_of_places(key, catalogue) or nearest(key, (*SECTIONS, *SHORT, *others))
            raise ConfigError(f"{where}: no such section {key!r}{hint}", _FORM)
        if key == "constraints":
            settings[key] = _names(value, where)
            if isinstance(value, Mapping):  # the tables have options as well as names
                settings |= _dotted(key, value)
            continue
        if key == "trackers":
            value = written_out({key: value})[key]
        if not isinstance(value, Mapping):
            settings[SHORT.get(key, key)] = value
        elif value or key in SECTIONS:
            settings |= _dotted(key, value)
        else:  # an empty table in the place of a value, which resolving the cell refuses
            settings[key] = value
    return settings


def _names(value: Any, where: str) -> list[str]:
    """Return the names of the constraints in use from a list, tables of options, or the word ``none``."""
    names = list(value) if isinstance(value, list | Mapping) else [value]
    if not all(isinstance(name, str) for name in names):
        raise ConfigError(f"{where}.constraints: expected names of constraints but got {shown(value)}")
    return [name for name in names if name != NONE]


def _dotted(prefix: str, table: Mapping[str, Any]) -> Settings:
    """Return the settings of a nested table by dotted keys."""
    settings: Settings = {}
    for key, value in table.items():
        path = f"{prefix}.{key}"
        if isinstance(value, Mapping) and value:
            settings |= _dotted(path, value)
        else:  # an empty table is a value: it says that there are no options
            settings[path] = value
    return settings


def _path_of(grid: Path | Mapping[str, Any]) -> Path:
    return grid if isinstance(grid, Path) else Path("grid")  # what is read of no file, by a name of its own


def _table(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where}: expected a table but got {shown(value)}")
    return value
