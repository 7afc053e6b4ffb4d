"""What the functions of lw2g return: each shows itself as a table in a notebook and has its rows."""

from __future__ import annotations

import html
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, get_args

from lw2g.config.toml import parse_value
from lw2g.errors import ConfigError, counted, nearest, shown
from lw2g.registry.catalogue import load_catalogue

if TYPE_CHECKING:
    from lw2g.results.found_runs import ReportedRun
    from lw2g.results.verdicts import Verdict
    from lw2g.sweeps.sweep_directory import Status

__all__ = ["ORDER", "Row", "RunRecord", "Runs", "SweepResult", "Tabular", "Verification", "html_table"]

Row = Mapping[str, Any]

_COMPONENTS = ("baseline", "policy", "benchmark", "backbone")
ORDER = "benchmark.order"
"""How the options begin that choose a class order, which nothing else of a row tells apart."""
_OF_RUNS = ("run", *_COMPONENTS, "seed", "state", "done", "tasks", "faa")


class Tabular(ABC):
    """A result that is a table: one mapping of plain values per row."""

    @abstractmethod
    def rows(self) -> Sequence[Row]:
        """Return the rows of the table, each a mapping from column to value."""

    def _repr_html_(self) -> str:
        return html_table(self.rows())


def html_table(rows: Iterable[Row]) -> str:
    """Return rows as an HTML table; what a row lacks of the columns is a dash."""
    listed = list(rows)
    columns: dict[str, None] = {}  # in the order in which rows first name them
    for row in listed:
        columns |= dict.fromkeys(row)
    head = _line(columns, "th")
    body = "".join(_line([_cell(row.get(name)) for name in columns], "td") for row in listed)
    return f"<table><thead>{head}</thead><tbody>{body}</tbody></table>"


def _line(texts: Iterable[str], tag: str) -> str:
    cells = "".join(f"<{tag}>{html.escape(text)}</{tag}>" for text in texts)
    return f"<tr>{cells}</tr>"


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.2f}"
    return str(value)


class _InFolder:
    """What has a directory stands for it wherever a path is asked for, as in :func:`lw2g.report`."""

    path: Path

    def __fspath__(self) -> str:
        return str(self.path)


class _Metrics(dict[str, float | None]):
    """Metrics by name."""

    def __missing__(self, name: str) -> NoReturn:
        """Refuse a name that is no metric, with the nearest one or all."""
        near = nearest(name, self) or f"; there are {', '.join(self)}"
        raise KeyError(f"the run has no metric {name!r}{near}")


class RunRecord(dict[str, Any], _InFolder, Tabular):
    """The record of a run: the content of ``record.json``, and where the run is.

    Attributes:
        path: The run's directory.
    """

    def __init__(self, record: Mapping[str, Any], path: Path) -> None:
        super().__init__(record)
        self.path = path

    @property
    def metrics(self) -> dict[str, float | None]:
        """The metrics by name."""
        return _Metrics(self["metrics"])

    if not TYPE_CHECKING:  # to a type checker a name that is no attribute stays an error

        def __getattr__(self, name: str) -> NoReturn:
            """Refuse a name that is no attribute, with where the record has it."""
            raise AttributeError(f"the record of a run has no attribute {name!r}{self._where(name)}")

    def __missing__(self, name: str) -> NoReturn:
        """Refuse a key that the record lacks, with where it has it, the nearest one or all."""
        where = self._where(name) or f"; it has {', '.join(self)}"
        raise KeyError(f"the record of a run has no {name!r}{where}")

    def _where(self, name: str) -> str:
        """Return where the record has something of this name, or the nearest to it; empty if nowhere."""
        if name in self:
            return f"; it is record[{name!r}]"
        if name in self.get("metrics", ()):
            return f"; it is record.metrics[{name!r}]"
        return nearest(name, [*self, *self.get("metrics", ())])

    def rows(self) -> list[Row]:
        """Return the accuracy of every task after every task, in percent; tasks count from 1."""
        matrix = self["accuracy_matrix"]
        rows: list[Row] = []
        for after in range(1, len(matrix) + 1):
            # a line of the matrix is a task, which has no value before it was learned
            for task, line in enumerate(matrix[:after], start=1):
                rows.append({"after_task": after, "task": task, "accuracy": line[after - 1]})
        return rows

    def __repr__(self) -> str:
        found = ", ".join(f"{name} {value:.2f}" for name, value in self.metrics.items() if value is not None)
        return f"<run {str(self.path)!r}: {found}>"

    def _repr_html_(self) -> str:
        rows = [{"metric": name, "value": value} for name, value in self.metrics.items() if value is not None]
        return f"<p>{html.escape(str(self.path))}</p>{html_table(rows)}"


class Runs(Tabular, Sequence["ReportedRun"]):
    """The runs below a directory.

    Attributes:
        runs: The runs, damaged ones too.
    """

    def __init__(self, runs: Sequence[ReportedRun]) -> None:
        self.runs = tuple(runs)

    def __len__(self) -> int:
        return len(self.runs)

    def __getitem__(self, place: Any) -> Any:
        return self.runs[place]

    def where(self, *conditions: str, **values: Any) -> Runs:
        """Return the runs that meet all conditions.

        Args:
            *conditions: Only runs with this value of an option (policy=min, growth.energy=0.9) or in this
                state (state=finished); a list for several.
            **values: The same from Python: ``where(policy="min")``.

        Raises:
            ConfigError: A condition is malformed, or no run has such an option.
        """
        from lw2g.results.found_runs import State

        states = get_args(State)
        chosen = list(self.runs)
        for key, value in values.items():
            if isinstance(value, list | tuple | set | range):
                raise ConfigError(
                    f"{key}: expected one value but got {shown(value)}", f"ask for each: where({key}=...)"
                )
        for text in (*conditions, *(f"{key}={value}" for key, value in values.items())):
            key, wanted = _condition(text)
            options = [{**run.options, "state": run.state} for run in chosen]
            known = {name for of_run in options for name in of_run}
            if chosen and key not in known:
                raise ConfigError(
                    f"--where: no run has an option {key!r}{nearest(key, known)}", "write it like seed=0"
                )
            if key == "state" and wanted not in states:
                raise ConfigError(f"--where: no state is called {wanted!r}", f"name {', '.join(states)}")
            # a value that is no text may have been written as one
            met = [wanted in (of_run.get(key), str(of_run.get(key))) for of_run in options]
            chosen = list(compress(chosen, met))
        return Runs(chosen)

    def values_of(self, condition: str) -> list[str]:
        """Return the values, as text, that runs have of the option of a condition.

        Args:
            condition: As for :meth:`where`.
        """
        key, _ = _condition(condition)
        found = {run.state if key == "state" else str(run.options.get(key)) for run in self.runs}
        return sorted(found)

    def rows(self) -> list[Row]:
        """Return path, components, seed, state, finished tasks and metrics of each run.

        Where runs of the same components differ by an option, the rows have it, too. The policy is None where
        the method has no sets to decide on.
        """
        catalogue = load_catalogue()
        rows: list[Row] = []
        differing = dict.fromkeys(key for options in self.differing_options() for key in options)
        for run in self.runs:
            named = {}
            for part in _COMPONENTS:
                named[part] = run.options.get(f"{part}.name")
            # every configuration names a policy, and a method without sets asks none
            if not catalogue.grows(str(named["baseline"])):
                named["policy"] = None
            rows.append(
                {
                    "run": str(run.path),
                    **named,
                    "seed": run.options.get("run.seed"),
                    **{key: run.options[key] for key in differing if key in run.options},
                    "state": run.state,
                    "done": run.done,
                    "tasks": run.tasks,
                    **run.record.get("metrics", {}),
                }
            )
        return rows

    def by_draws(self) -> Runs:
        """Return the runs, those of one configuration together, by the seeds of orders and their own."""
        from lw2g.results.run_draws import by_draw

        first: dict[tuple[Any, ...], int] = {}
        keyed = []
        for place, (run, options) in enumerate(zip(self.runs, self.differing_options(), strict=True)):
            own = [item for item in options.items() if not item[0].startswith("benchmark.order")]
            configuration = (run.path.parent, _components_of(run), *own)
            keyed.append((first.setdefault(configuration, place), *by_draw(run), place))
        return Runs([self.runs[place] for *_, place in sorted(keyed)])

    def baseline_names(self) -> list[tuple[str | None, frozenset[str]]]:
        """Return of each run its baseline as reports name it, and the options that the name tells.

        A run without a record has the bare name; it is None where a damaged one does not tell it.
        """
        from lw2g.results.row_names import baseline_of, settings_of

        catalogue = load_catalogue()
        found: list[tuple[str | None, frozenset[str]]] = []
        for run in self.runs:
            if not run.record:
                found.append((run.options.get("baseline.name"), frozenset()))
                continue
            settings = settings_of(run, catalogue)
            told = frozenset(key for key in settings.changed if key.startswith("baseline."))
            found.append((baseline_of(run, settings), told))
        return found

    def differing_options(self, *, preset: bool = True) -> list[dict[str, str]]:
        """Return of each run the options by which it differs from others of the same components, as text.

        The seed, which stands in the rows, and what is of the machine do not count; nor does an option that
        nothing reads, a list that is empty, since nobody gave it, or what not all of them have, since it
        comes with a component that does not stand in the rows.

        Args:
            preset: Whether options with the value that they have where nobody sets them are among them; those
                of the class order always are.
        """
        from lw2g.config.describe import plain
        from lw2g.config.roles import role_of_key
        from lw2g.interfaces.options import UNCOUNTED
        from lw2g.results.row_names import preset_of, unread_by

        catalogue = load_catalogue()
        alike: dict[tuple[Any, ...], list[ReportedRun]] = {}
        for run in self.runs:
            alike.setdefault(_components_of(run), []).append(run)
        found = []
        for run in self.runs:
            others = [other.options for other in alike[_components_of(run)]]
            differing = {}
            unread = unread_by(run, catalogue)
            left_out = {} if preset or not run.options else preset_of(run, catalogue)
            for key, value in run.options.items():
                if key in unread or value == [] or not all(key in other for other in others):
                    continue
                if all(other[key] == value for other in others):
                    continue
                is_preset = key in left_out and left_out[key] == value
                if is_preset and not key.startswith(ORDER):
                    continue
                if key != "run.seed" and role_of_key(key, run.config, catalogue) not in UNCOUNTED:
                    differing[key] = plain(value)
            found.append(differing)
        return found

    def __repr__(self) -> str:
        return f"<{counted(len(self), 'run')}>"

    def _repr_html_(self) -> str:
        return html_table({name: row.get(name) for name in _OF_RUNS} for row in self.rows())


def _components_of(run: ReportedRun) -> tuple[Any, ...]:
    return tuple(run.options.get(f"{part}.name") for part in _COMPONENTS)


def _condition(text: str) -> tuple[str, Any]:
    """Return key and value of a condition.

    Raises:
        ConfigError: The text is not a condition.
    """
    from lw2g.sweeps.grid import settings_of

    if not isinstance(text, str):
        raise ConfigError(f"--where: expected KEY=VALUE but got {shown(text)}", "write it like seed=0")
    key, equals, value = text.partition("=")
    if value.startswith("="):
        remedy = f"write {key.strip()}={value.lstrip('= ')}"
        raise ConfigError(f"--where: expected KEY=VALUE but got {text!r}", remedy)
    if not equals:
        raise ConfigError(
            f"--where: expected KEY=VALUE but got {text!r}", "write it like baseline=hide-prompt"
        )
    if key == "state":
        return key, value
    ((dotted, wanted),) = settings_of({key: parse_value(value)}, "--where").items()
    return dotted, wanted


class Verification(Tabular):
    """Whether a run's files are intact and its numbers follow from its predictions; true if all hold.

    Attributes:
        verdicts: One per file and value.
    """

    def __init__(self, verdicts: Sequence[Verdict]) -> None:
        self.verdicts = tuple(verdicts)

    @property
    def broken(self) -> tuple[Verdict, ...]:
        """What does not hold."""
        return tuple(verdict for verdict in self.verdicts if verdict.holds is False)

    @property
    def holds(self) -> bool:
        """Whether everything holds."""
        return not self.broken

    @property
    def shared_images(self) -> str:
        """Which test images were trained on, in words; empty for none."""
        from lw2g.results.verification import TEST_IMAGES

        return self._told_of(TEST_IMAGES)

    @property
    def unfinished(self) -> str:
        """How far an unfinished run is, and what goes on; empty of a finished one."""
        from lw2g.results.verification import UNFINISHED

        return self._told_of(UNFINISHED)

    def _told_of(self, what: str) -> str:
        return next((verdict.text for verdict in self.verdicts if verdict.what == what), "")

    def __bool__(self) -> bool:
        return self.holds

    def rows(self) -> list[Row]:
        """Return what was examined, whether it holds (None: not known), and what was found."""
        return [{"what": one.what, "holds": one.holds, "text": one.text} for one in self.verdicts]

    def __repr__(self) -> str:
        if self.holds:
            return (
                f"<unfinished: {self.unfinished}; what is there holds>"
                if self.unfinished
                else "<everything holds>"
            )
        return f"<{len(self.broken)} of {len(self.verdicts)} do not hold>"


class SweepResult(_InFolder, Tabular):
    """The cells of a sweep after it has ended or was stopped.

    Attributes:
        path: The sweep's directory; :func:`lw2g.report` takes it, or the result itself.
        cells: The status of each cell.
        stale: By a cell's name the options and plugins in which its finished run differs from what its
            settings give now; empty where that was not asked.
    """

    def __init__(
        self, path: Path, cells: Sequence[Status], stale: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        self.path = path
        self.cells = tuple(cells)
        self.stale = dict(stale or {})

    def log_of(self, status: Status) -> Path:
        """Return the file with what a cell's process has printed."""
        from lw2g.sweeps.sweep_directory import SweepDirectory

        store = SweepDirectory(self.path)
        return store.named(store.job(status.cell).log)

    @property
    def finished(self) -> bool:
        """Whether all cells are finished."""
        return all(status.state == "finished" for status in self.cells)

    def rows(self) -> list[Row]:
        """Return label, state, directory and settings of each cell, why it failed, and its metrics."""
        rows: list[Row] = []
        for status in self.cells:
            row = {
                "cell": status.cell.label,
                "state": status.state,
                "run": str(self.path / status.cell.name),
                "reason": status.reason,
                **status.cell.settings,
            }
            if status.run is not None:
                row |= status.run.record.get("metrics", {})
            rows.append(row)
        return rows

    def __repr__(self) -> str:
        done = sum(status.state == "finished" for status in self.cells)
        return f"<sweep {str(self.path)!r}: {done} of {len(self.cells)} cells finished>"

    def _repr_html_(self) -> str:
        shown = ("cell", "state", "run", "reason", "faa")
        return html_table({name: row.get(name) for name in shown} for row in self.rows())
