"""Data of the user's own are named by what a benchmark's options say of themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs

from lw2g.interfaces.options import option
from lw2g.results.conditions import benchmark_title
from lw2g.results.table import tables_of


@attrs.frozen(kw_only=True)
class Shelf:
    """Options of a stranger's benchmark, whose data are the user's own."""

    shelf: Path | None = option(None, "where the images lie", role="machine")
    called: str = option("", "name of the data in reports", role="title")
    increment: int = option(1, "new classes per task")


@attrs.frozen(kw_only=True)
class Book(Shelf):
    """Options of another one, whose data are published."""

    called: str = option("", "what it draws")


def test_a_strangers_own_data_are_called_by_their_title_or_their_place(
    write_run: Any, installed: Any
) -> None:
    """As folders of ours are, whatever the options are called; other benchmarks by their own name."""
    folder = installed.get("benchmark", "folder")

    def titles(config: type[Any], *runs: Any) -> list[str]:
        changed = attrs.evolve(folder, config=config, like_for_like={}, rehearsal={})
        catalogue = installed.with_component(changed)
        assert len(tables_of(runs, catalogue)) == len(runs)
        return [benchmark_title(run, catalogue) for run in runs]

    def run(digit: str, **options: Any) -> Any:
        table = {"name": "folder", "increment": 1, **options}
        return write_run(1.0, benchmark=table, **{"record.fingerprints.benchmark": digit * 64})

    runs = [run("1", shelf="/a/birds"), run("2", shelf="/a/birds", called="Bees")]
    assert titles(Shelf, *runs) == ["images in 'birds'", "Bees"]
    given = attrs.evolve(run("3", shelf="folder"), data="wrens")  # a pack does not tell its folder
    assert titles(Shelf, given) == ["wrens"]
    assert titles(Book, *runs) == ["folder", "folder"]
