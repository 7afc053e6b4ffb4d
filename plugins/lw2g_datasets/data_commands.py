"""``lw2g data`` lists, fetches and checks published data sets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click

from lw2g.cli.bars import Bars
from lw2g.cli.completion import complete_component
from lw2g.cli.paths import AnyPath
from lw2g.cli.shared_options import json_option, settings_option
from lw2g.cli.signature import documented, help_of, option_of, options_of
from lw2g.errors import counted
from lw2g.runtime.console import console, note, table
from lw2g_datasets.datasets import (
    ROOT_VARIABLE,
    check_data,
    data_sets,
    default_root,
    facts_of,
    get_data,
    images_of,
    way_to_get,
)
from lw2g_datasets.features_command import features

if TYPE_CHECKING:
    from lw2g.interfaces.dataset import DataSet

__all__ = ["data"]


@click.group()
@documented
def data() -> None:
    """List, fetch and check published data sets, and store features."""


data.add_command(features)


@data.command("list", short_help="Print facts about each data set.", help=help_of(data_sets))
@click.argument("name", required=False, shell_complete=complete_component("benchmark"))
@json_option("Print a JSON list.")
def list_data(name: str | None, as_json: bool) -> None:
    """Print a row per data set, or the facts about one, a line each."""
    found = data_sets(name)
    if as_json:
        click.echo(json.dumps([_plain(data) for data in found], indent=1))
        return
    if name is not None:
        _print_facts(found[0])
        return
    columns = ("name", "get", "here", "download", "classes", "train", "test")
    console().print(table("", columns, [_row(data) for data in found], left=3))
    said = f"{default_root()} is the folder of all data sets ({ROOT_VARIABLE} names another)"
    click.echo(f"{said}; `lw2g data list NAME` shows its terms, its page and what is unconfirmed")


def _row(data: DataSet) -> tuple[str, ...]:
    """Return the line of a data set in the table, which 80 columns hold."""
    is_here = bool(data.folder) and data.lies_below(default_root())
    usual_split = next(iter(data.splits.values()))
    return (
        data.name,
        way_to_get(data),
        "yes" if is_here else "-",
        data.size or "?",
        str(data.num_classes),
        *images_of(usual_split),
    )


def _plain(data: DataSet) -> dict[str, Any]:
    content: dict[str, Any] = attrs.asdict(data, recurse=False)
    content["splits"] = {name: attrs.asdict(split) for name, split in data.splits.items()}
    content["routes"] = [str(route) for route in data.routes]
    content["beside"] = [attrs.asdict(file) for file in data.beside]
    content["variable"] = ROOT_VARIABLE
    return content


def _print_facts(data: DataSet) -> None:
    click.echo(f"{data.name}: {data.title}, {counted(data.num_classes, 'class')}")
    for line in facts_of(data):
        click.echo(f"  {line}")


@data.command(short_help="Fetch a data set.", help=help_of(get_data))
@click.argument("name", shell_complete=complete_component("benchmark"))
@option_of(get_data, "root", metavar="DIRECTORY", type=AnyPath(path_type=Path, file_okay=False))
@option_of(get_data, "source", "--from", metavar="FILE|FOLDER|URL")
@option_of(get_data, "revision", metavar="COMMIT")
def get(name: str, **options: Any) -> None:
    """Print what is done, and where the data set is."""
    with Bars() as progress:
        folder = get_data(name, progress=progress.report, say=note, **options)
    click.echo(f"{name} is in {str(folder)!r}; `lw2g data check {name}` examines it")


@data.command(short_help="Examine the data of a benchmark.", help=help_of(check_data))
@click.argument("name", shell_complete=complete_component("benchmark"))
@click.argument("root", required=False, type=AnyPath(path_type=Path, file_okay=False))
@options_of(check_data, "split")
@settings_option(check_data)
@json_option("Print class counts and hashes as JSON.")
def check(name: str, root: Path | None, split: str | None, settings: dict[str, Any], as_json: bool) -> None:
    """Print counts, checksums, and what is known to be wrong."""
    with Bars(counted=True) as progress:
        report = check_data(name, root, split=split, settings=settings, progress=progress.report)
    if as_json:
        click.echo(json.dumps(report, indent=1))
        return
    rows = []
    for part, checksum in report["sha256"].items():
        counts = sorted(of_class[part] for of_class in report["classes"].values())
        spread = f"{counts[0]} / {counts[len(counts) // 2]} / {counts[-1]}"
        rows.append((part, str(sum(counts)), str(len(counts)), spread, checksum))
    columns = ("", "images", "classes", "least / median / most a class", "sha256 of the list of files")
    console().print(table(f"{name}, split {report['split'] or '-'}", columns, rows))
    for text in report["differs"]:
        note(f"differs: {text}")
    if report["flaws"]:
        note(f"known flaws: {report['flaws']}")
    for text in report["unconfirmed"]:
        note(f"unconfirmed: {text}")
    click.echo(f"{name} is whole; fingerprint of this stream: {report['fingerprint']}")
