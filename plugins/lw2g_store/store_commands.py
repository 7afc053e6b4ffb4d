"""``lw2g submit`` packs a run for a store of results; ``lw2g store`` makes and checks one."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from lw2g.cli.paths import AnyPath
from lw2g.cli.signature import Further, LongCommand, documented, help_of, option_of, options_of
from lw2g.errors import DataError, as_word, counted
from lw2g.runtime.console import in_units, note, printable
from lw2g_store import stores
from lw2g_store.layout import BADGES

__all__ = ["store", "submit"]

_RUN = AnyPath(path_type=Path, file_okay=False)


@click.command(cls=LongCommand, help=help_of(stores.submit))
@click.argument("run", metavar="RUN", type=_RUN)
@option_of(stores.submit, "out", type=_RUN)
@options_of(stores.submit, "who")
@option_of(stores.submit, "licence", type=click.Choice(stores.LICENCES))
@option_of(stores.submit, "tuned_on", metavar="TEXT")
@option_of(stores.submit, "runs")
@option_of(stores.submit, "hardware", metavar="TEXT", cls=Further)
@option_of(stores.submit, "contact", metavar="TEXT")
@option_of(stores.submit, "paper", metavar="TEXT")
@options_of(stores.submit, "new_protocol")
@option_of(stores.submit, "replaces", metavar="SHA256", cls=Further)
@option_of(stores.submit, "plugin", metavar="URL@COMMIT", cls=Further)
def submit(run: Path, **options: Any) -> None:
    """Print what was packed."""
    packed, added = stores.submit(run, **options)
    if added is not None:
        click.echo(f"the store's new protocol: {added}")
        click.echo("commit it first, by itself: a proposal of a run adds that run alone")
    for name, size in packed.sizes.items():
        click.echo(f"  {name}: {in_units(size)}")
    click.echo(printable(f"{packed.path}: {in_units(sum(packed.sizes.values()))}; nothing was uploaded"))


@click.group()
@documented
def store() -> None:
    """Make and check a store of results, a git repository that others add runs to."""


@store.command(short_help="Make an empty store.", help=help_of(stores.init_store))
@click.argument("directory", metavar="DIR", type=_RUN)
def init(directory: Path) -> None:
    """Print the files, and what comes next."""
    lacking = _lacking_of_git()
    if lacking:  # first: without it none of the commits below can be made
        note(lacking)
    for path in stores.init_store(directory):
        click.echo(f"{path}")
    place = as_word(directory)
    click.echo(
        f"next, with a checkout of lw2g: pip wheel --no-deps ./CHECKOUT -w {as_word(directory / 'tools')}"
    )
    whole = directory.absolute()
    in_repository = any((folder / ".git").exists() for folder in (whole, *whole.parents))
    begin = "" if in_repository else f"git init {place} && "
    click.echo(f"then: {begin}git -C {place} add . && git -C {place} commit -m store")
    click.echo(
        f"then, with your words: lw2g submit RUN --out {place} --new-protocol --who NAME "
        f"--licence {stores.LICENCES[0]} --tuned-on 'WHAT, ON WHICH IMAGES' --runs 1"
    )
    named = f"first lw2g store protocol {place} RUN --data NAME"
    click.echo(f"a run on your own images: {named}, then submit it without --new-protocol")


def _lacking_of_git() -> str:
    """Return what git lacks to commit in this folder, and what to do about it; empty if nothing."""
    try:
        known = subprocess.run(["git", "var", "GIT_COMMITTER_IDENT"], capture_output=True, check=False)
    except FileNotFoundError:
        return "git, in which a store is kept, is not installed"
    if known.returncode == 0:
        return ""
    return (
        "git does not know who commits: git config --global user.name NAME && "
        "git config --global user.email ADDRESS"
    )


@store.command(short_help="Add the protocol of a run to a store.", help=help_of(stores.add_protocol))
@click.argument("directory", metavar="DIR", type=_RUN)
@click.argument("run", metavar="RUN", type=_RUN)
@option_of(stores.add_protocol, "seeds", "--seed", type=int, multiple=True)
@options_of(stores.add_protocol, "data")
def protocol(directory: Path, run: Path, seeds: Sequence[int], data: str) -> None:
    """Print the protocol's file."""
    click.echo(f"{stores.add_protocol(directory, run, seeds=seeds, data=data)}")


_EXIT = "The exit code is 1 if anything does not hold."


@store.command(short_help="Check a store, or a change of it.", help=help_of(stores.check_store, _EXIT))
@click.argument("directory", metavar="DIR", type=_RUN)
@option_of(
    stores.check_store,
    "changed",
    type=AnyPath(path_type=Path, dir_okay=False, exists=True, allow_dash=True),
    metavar="FILE",
)
@click.pass_context
def check(ctx: click.Context, directory: Path, changed: Path | None) -> None:
    """Print every finding."""
    lines = None
    if changed is not None:
        with click.open_file(str(changed), "rb") as file:
            content = file.read()
        if b"\0" in content:
            raise DataError(
                f"{str(changed)!r} is no text in UTF-8",
                "write it as git does: git diff --name-status BASE HEAD",
            )
        # a name that is no UTF-8 is none of a run, and is refused as it is shown
        lines = content.decode(errors="backslashreplace").splitlines()
    result = stores.check_store(directory, changed=lines)
    for verdict in result.verdicts:
        click.echo(printable(f"{_outcome(verdict.holds)}  {verdict.what}: {verdict.text}"))
    count = len(result.verdicts)
    broken = len(result.broken)
    if broken:
        click.echo(f"{broken} of {count} do not hold")
        ctx.exit(1)
    badges = sum(verdict.what.startswith(f"{BADGES}/") for verdict in result.verdicts)
    counts = counted(count - badges, "run") + (f", {counted(badges, 'file')} of badges" if badges else "")
    none = "no run is there yet: lw2g submit adds one"
    click.echo(f"everything holds ({counts})" if count else none)


_ALL = """The exit code is 1 if they differ in more than 0.1 %, or if new images are answered worse by more
than three standard errors."""


@store.command(short_help="Predict again with a run's exported model.", help=help_of(stores.repredict, _ALL))
@click.argument("pack", metavar="PACK", type=_RUN)
@click.argument("model", metavar="MODEL", type=_RUN)
@option_of(stores.repredict, "data", metavar="ROOT")
@option_of(stores.repredict, "fresh", type=click.IntRange(0, 2**31 - 1), metavar="SEED")
@option_of(stores.repredict, "device")
@option_of(stores.repredict, "store", type=_RUN, metavar="DIR")
@click.pass_context
def repredict(ctx: click.Context, /, pack: Path, model: Path, **options: Any) -> None:
    """Print each badge, and where it was written."""
    all_hold = True
    # each badge takes minutes, and is printed when it is there
    for badge, file in stores.repredict(pack, model, **options):
        click.echo(printable(f"{_outcome(badge.holds)}  {badge.badge}: {badge.text}"))
        if file is not None:
            click.echo(f"{file}")
        all_hold = all_hold and badge.holds
    if not all_hold:
        ctx.exit(1)


def _outcome(holds: bool | None) -> str:
    """Return how a line begins; what could not be examined does not hold."""
    if holds:
        return "holds"
    return "FAILS"
