"""``lw2g submit`` packs a run for a store of results; ``lw2g store`` makes and checks one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lw2g.errors import ConfigError, Lw2gError, counted

if TYPE_CHECKING:
    from lw2g.store.badges import Badge
    from lw2g.store.packs import Pack

__all__ = ["store", "submit"]

_RUN = click.Path(path_type=Path, file_okay=False)


@click.command(short_help="Pack a run for a store of results; uploads nothing.")
@click.argument("run", metavar="RUN", type=_RUN)
@click.option(
    "--out", type=_RUN, default="submission", show_default=True, help="A store, or a folder for packs."
)
@click.option("--who", metavar="NAME", help="Your name or a pseudonym. [required]")
@click.option(
    "--licence",
    type=click.Choice(["CC0-1.0", "CC-BY-4.0"]),
    help="Terms under which you give the run away. [required]",
)
@click.option(
    "--tuned-on", metavar="TEXT", help="What was tuned, and on which images; `nothing` counts. [required]"
)
@click.option("--runs", type=click.IntRange(min=1), help="Number of runs made for this one. [required]")
@click.option("--hardware", default="", help="What it ran on, if the record should not be the only word.")
@click.option("--contact", default="", help="Where to reach you.")
@click.option("--paper", default="", help="Address of a paper.")
@click.option(
    "--new-protocol",
    is_flag=True,
    help="Where OUT is a store without the run's protocol: add it, for a store of your own.",
)
@click.option(
    "--replaces", default="", metavar="SHA256", help="The record of a stored run that this one corrects."
)
@click.option(
    "--plugin", default="", metavar="URL@COMMIT", help="Where a plugin lies that is on no package index."
)
def submit(run: Path, out: Path, new_protocol: bool, **told: Any) -> None:
    """Verify the run in the directory RUN and pack its record, configuration and predictions.

    Paths, user and system of this machine and the names of classes are left out. Nothing is uploaded: add the
    folder to a checkout of the store and open a pull request.
    """
    from lw2g.console.output import in_units, printable

    needed = ("who", "licence", "tuned_on", "runs")
    if missing := [f"--{name.replace('_', '-')}" for name in needed if not str(told[name] or "").strip()]:
        raise ConfigError(
            f"submit: {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing",
            "say who gives the run, under which licence, what was tuned on which images, and how many runs "
            "were made for this one",
        )
    for name, value in told.items():
        if isinstance(value, str) and (len(value) > 1_000 or not value.isprintable()):
            raise ConfigError(
                f"--{name.replace('_', '-')}: more than one line or 1,000 letters", "shorten it"
            )
    from lw2g.registry.catalogue import load_catalogue
    from lw2g.store.layout import take_back
    from lw2g.store.packs import PLUGIN

    if told["plugin"] and not re.fullmatch(PLUGIN, told["plugin"]):
        raise ConfigError(
            f"--plugin: {told['plugin']!r} is not an address and a commit",
            "write https://HOST/PATH@COMMIT, with all 40 digits of the commit",
        )
    from lw2g.store.submit import submit as pack

    added = _added_protocol(run, out) if new_protocol else None
    try:
        packed = pack(run, load_catalogue(), out, told)
    except Lw2gError:
        if added is not None:
            take_back(added, out)
        raise
    if added is not None:
        click.echo(f"the store's new protocol: {added}")
    for name, size in packed.sizes.items():
        click.echo(f"  {name}: {in_units(size)}")
    click.echo(printable(f"{packed.path}: {in_units(sum(packed.sizes.values()))}; nothing was uploaded"))


def _added_protocol(run: Path, out: Path) -> Path | None:
    """Add the run's protocol to a store; return its file, or None where the store has the protocol."""
    from lw2g.files.contents import read_record
    from lw2g.store.layout import add_protocol, protocol_of, require_store

    require_store(out)
    record = read_record(run)
    if protocol_of(out, record, required=False) is not None:
        return None
    return add_protocol(out, record, [])


@click.group(short_help="Make and check a store of results.")
def store() -> None:
    """Make and check a store of results, a git repository that others add runs to."""


@store.command(short_help="Make an empty store.")
@click.argument("directory", metavar="DIR", type=_RUN)
def init(directory: Path) -> None:
    """Make the layout of a store in the new folder DIR, with README, licence, schema and CI workflow."""
    from lw2g.store.layout import init as make

    for name in make(directory):
        click.echo(f"{directory / name}")


@store.command(short_help="Add the protocol of a run to a store.")
@click.argument("directory", metavar="DIR", type=_RUN)
@click.argument("run", metavar="RUN", type=_RUN)
@click.option(
    "--seed", "seeds", type=int, multiple=True, help="A seed that runs may have; repeatable. [default: any]"
)
@click.option(
    "--data", default="", metavar="NAME", help="Name of the data in the id, where the benchmark is `folder`."
)
def protocol(directory: Path, run: Path, seeds: Sequence[int], data: str) -> None:
    """Write what RUN was evaluated under into the store DIR, as the next version of its name."""
    from lw2g.files.contents import read_record
    from lw2g.store.layout import add_protocol, require_store

    require_store(directory)
    click.echo(f"{add_protocol(directory, read_record(run), list(seeds), data)}")


@store.command(short_help="Check a store, or a change of it.")
@click.argument("directory", metavar="DIR", type=_RUN)
@click.option(
    "--changed",
    type=click.Path(path_type=Path, dir_okay=False, exists=True, allow_dash=True),
    metavar="FILE",
    help="Check the one run that a change adds: the output of `git diff --name-status BASE HEAD`.",
)
@click.pass_context
def check(ctx: click.Context, directory: Path, changed: Path | None) -> None:
    """Check all runs and badges of the store DIR, without torch and without running anybody's code.

    Paths, sizes, seals, the protocol, every metric from the predictions, and whatever is told twice. The exit
    code is 1 if anything does not hold.
    """
    from lw2g.console.output import printable
    from lw2g.registry.catalogue import load_catalogue
    from lw2g.store.checks import check_store

    lines = None
    if changed is not None:
        with click.open_file(str(changed), encoding="utf-8") as file:
            lines = file.read().splitlines()
    verdicts = check_store(directory, load_catalogue(), lines)
    for verdict in verdicts:
        click.echo(printable(f"{'holds' if verdict.holds else 'FAILS'}  {verdict.what}: {verdict.text}"))
    broken = sum(verdict.holds is False for verdict in verdicts)
    click.echo(
        f"{broken} of {len(verdicts)} do not hold" if broken else f"everything holds ({len(verdicts)})"
    )
    ctx.exit(1 if broken else 0)


@store.command(short_help="List the cells of a grid that nobody has run.")
@click.argument("directory", metavar="DIR", type=_RUN)
@click.option("--grid", required=True, metavar="GRID.toml", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--cost", is_flag=True, help="Measure cells without stored runs like them (a few steps each).")
def missing(directory: Path, grid: Path, cost: bool) -> None:
    """List the cells of GRID.toml that have no run in the store DIR, with expected minutes.

    Minutes are those of stored runs of the same method on the same benchmark, on whatever machine; `?` if
    there are none.
    """
    from lw2g.cli.plan import costs_of
    from lw2g.console.output import note, printable
    from lw2g.estimate.estimate import Estimate
    from lw2g.registry.catalogue import load_catalogue
    from lw2g.sweeps.grid import read_grid
    from lw2g.sweeps.missing import missing_cells

    cells, catalogue = read_grid(grid), load_catalogue()
    found, left_out = missing_cells(directory, catalogue, cells)
    for line in left_out:
        note(line)
    unknown = [cell for cell, minutes in found if minutes is None]
    costs = dict(zip(map(id, unknown), costs_of(unknown, catalogue), strict=True)) if cost else {}
    for cell, minutes in found:
        measured = costs.get(id(cell))
        if minutes is None and isinstance(measured, Estimate):
            minutes = measured.seconds.most / 60
        click.echo(printable(f"{cell.label}: {'?' if minutes is None else f'{minutes:.1f}'} min"))
    click.echo(f"missing: {len(found)} of {counted(len(cells), 'cell')}")


_STORE = click.option(
    "--store", "place", type=_RUN, metavar="DIR", help="Write the badges that hold into this store."
)


@store.command(short_help="Predict again with a run's exported model.")
@click.argument("pack", metavar="PACK", type=_RUN)
@click.argument("model", metavar="MODEL", type=_RUN)
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    metavar="ROOT",
    help="The root of the data, or the file of features.",
)
@click.option(
    "--fresh",
    type=click.IntRange(0, 2**31 - 1),
    metavar="SEED",
    help="Also draw new test images with this seed (glyphs).",
)
@click.option("--device", default="cpu", show_default=True, help="Where the model computes.")
@_STORE
@click.pass_context
def repredict(
    ctx: click.Context,
    pack: Path,
    model: Path,
    data: Path | None,
    fresh: int | None,
    device: str,
    place: Path | None,
) -> None:
    """Compare the predictions in PACK with those of the exported MODEL, image by image in random order.

    The plugins of the model run here: use a model of components that you trust. The exit code is 1 if they
    differ in more than 0.1 %, or if new images are answered worse by more than three standard errors.
    """
    from lw2g.registry.catalogue import load_catalogue
    from lw2g.store.badges import predicted_again
    from lw2g.store.packs import opened

    run = opened(pack, load_catalogue())
    _award(ctx, run, predicted_again(run, model, data=data, fresh=fresh, device=device), place)


def _award(ctx: click.Context, pack: Pack, badges: Sequence[Badge], place: Path | None) -> None:
    from lw2g.console.output import printable
    from lw2g.store.badges import add_badge

    for badge in badges:
        click.echo(printable(f"{'holds' if badge.holds else 'FAILS'}  {badge.badge}: {badge.text}"))
        if place is not None and badge.holds:
            click.echo(f"{add_badge(place, pack, badge)}")
    ctx.exit(0 if all(badge.holds for badge in badges) else 1)
