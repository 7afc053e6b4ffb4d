"""``lw2g data`` lists, fetches and checks published data sets."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lw2g.cli.bars import Bars
from lw2g.cli.completion import complete_component
from lw2g.cli.features import features
from lw2g.cli.options import settings_option
from lw2g.console.output import console, note, table
from lw2g.errors import ConfigError, DataError, UnknownComponentError
from lw2g.interfaces.component import BenchmarkComponent
from lw2g.interfaces.dataset import (
    DEFAULT_ROOT,
    ROOT_VARIABLE,
    ByHand,
    DataSet,
    HubRoute,
    Split,
    default_root,
)

if TYPE_CHECKING:
    from lw2g.interfaces.stream import TaskData, TaskStream

__all__ = ["data", "facts_of"]

_SPLITS = ("train", "test")


@click.group(short_help="List, fetch and check data sets; store features.")
def data() -> None:
    """List, fetch and check published data sets, and store features."""


data.add_command(features)


def _components() -> Iterator[tuple[BenchmarkComponent, DataSet]]:
    from lw2g.registry.catalogue import load_catalogue

    for entry in load_catalogue().components():
        component = entry.component
        if isinstance(component, BenchmarkComponent) and component.data is not None:
            yield component, component.data


@data.command("list", short_help="Print facts about each data set.")
@click.argument("name", required=False, shell_complete=complete_component("benchmark"))
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def list_data(name: str | None, as_json: bool) -> None:
    """Print the main facts about all data sets, or all facts about NAME."""
    data_sets = [data for _, data in _components()] if name is None else [_data_of(name)]
    if as_json:
        click.echo(json.dumps([_plain(data) for data in data_sets], indent=1))
    elif name is not None:
        _print_facts(data_sets[0])
    else:
        rows = [
            (
                *(
                    data.name,
                    _way(data),
                    "yes" if data.folder and data.lies_below(default_root()) else "-",
                    data.terms,
                    data.page,
                ),
                *(data.size or "?", str(data.num_classes), *_counts(next(iter(data.splits.values())))),
            )
            for data in data_sets
        ]
        columns = ("name", "get", "here", "terms", "page", "download", "classes", "train", "test")
        console().print(table("", columns, rows, left=5))
        said = f"{default_root()} is the folder of all data sets ({ROOT_VARIABLE} names another)"
        click.echo(f"{said}; `lw2g data list NAME` shows details")


def _data_of(name: str) -> DataSet:
    by_name = {data.name: data for _, data in _components()}
    if name not in by_name:
        from lw2g.errors import nearest

        raise UnknownComponentError(
            f"no data set is called {name!r}{nearest(name, by_name)}", "run `lw2g data list` for all names"
        )
    return by_name[name]


def _counts(split: Split) -> tuple[str, str]:
    return ("?" if split.train is None else str(split.train), "?" if split.test is None else str(split.test))


def _way(data: DataSet) -> str:
    """Return how to get a data set: ``yes`` (this command), ``--revision`` (and a commit), or ``by hand``."""
    direct = [route for route in data.routes if not isinstance(route, ByHand)]
    if not direct:
        return "by hand"
    unpinned = all(isinstance(route, HubRoute) and route.revision is None for route in direct)
    return "--revision" if unpinned else "yes"


def _plain(data: DataSet) -> dict[str, Any]:
    import attrs

    return {
        **attrs.asdict(data, recurse=False),
        "splits": {k: attrs.asdict(v) for k, v in data.splits.items()},
    } | {
        "routes": [str(route) for route in data.routes],
        "beside": [attrs.asdict(file) for file in data.beside],
        "variable": ROOT_VARIABLE,
    }


def facts_of(data: DataSet) -> Iterator[str]:
    """Yield the facts about a data set, one line each."""
    yield f"page: {data.page}"
    yield f"terms: {data.terms}"
    yield f"folder below {ROOT_VARIABLE}: {data.folder or '(none of its own)'}, with {data.layout}"
    for name, split in data.splits.items():
        train, test = _counts(split)
        listed = ", lists known" if split.test_sha256 else ""
        yield f"split {name}: {train} + {test} images, read from {split.reader}{listed}"
    yield from (f"from {route}" for route in data.routes)
    if data.flaws:
        yield f"flaws: {data.flaws}"
    yield from (f"unconfirmed: {text}" for text in data.unconfirmed)


def _print_facts(data: DataSet) -> None:
    click.echo(f"{data.name}: {data.title}, {data.num_classes} classes")
    for line in facts_of(data):
        click.echo(f"  {line}")


@data.command(short_help="Fetch a data set.")
@click.argument("name", shell_complete=complete_component("benchmark"))
@click.option(
    "--root",
    type=click.Path(path_type=Path, file_okay=False),
    help=f"Folder of all data sets. [default: {ROOT_VARIABLE}, else {DEFAULT_ROOT}]",
)
@click.option(
    "--from", "source", metavar="FILE|FOLDER|URL", help="An archive to unpack, or a folder to copy, instead."
)
@click.option("--revision", metavar="COMMIT", help="The commit of a hub data set without a confirmed one.")
def get(name: str, root: Path | None, source: str | None, revision: str | None) -> None:
    """Fetch the data set NAME by the first of its routes that works.

    An interrupted download continues where it stopped. An archive is unpacked only after its checksum fits
    (if one is known), and only plain files inside the data set's own folder are written.
    """
    from lw2g.data.obtain import obtain

    wanted = _data_of(name)
    place = default_root() if root is None else root.expanduser().absolute()
    note(f"{wanted.title}: {wanted.terms}; {wanted.page}")
    if wanted.rehosting_forbidden:
        note("its terms forbid redistribution")
    with Bars() as progress:
        obtain(wanted, place, progress.report, note, source=source, revision=revision)
    click.echo(f"{wanted.name} is in {str(place / wanted.folder)!r}; `lw2g data check {name}` examines it")


@data.command(short_help="Examine the data of a benchmark.")
@click.argument("name", shell_complete=complete_component("benchmark"))
@click.argument("root", required=False, type=click.Path(path_type=Path, file_okay=False))
@click.option("--split", metavar="NAME", help="The split. [default: the benchmark's]")
@click.option("--json", "as_json", is_flag=True, help="Print class counts and hashes as JSON.")
def check(name: str, root: Path | None, split: str | None, as_json: bool) -> None:
    """Examine the data of the benchmark NAME, below ROOT (default: the environment variable LW2G_DATA).

    It decodes every image, since a JPEG may be damaged in the middle. Missing or unusable images, and
    differences from the published facts, are errors.
    """
    report = _examined(name, root, split)
    if as_json:
        click.echo(json.dumps(report, indent=1))
        return
    rows = []
    for part in _SPLITS:
        counts = sorted(of_class[part] for of_class in report["classes"].values())
        spread = f"{counts[0]} / {counts[len(counts) // 2]} / {counts[-1]}"
        rows.append((part, str(sum(counts)), str(len(counts)), spread, report["sha256"][part]))
    columns = ("", "images", "classes", "least / median / most a class", "sha256 of the list of files")
    console().print(table(f"{name}, split {report['split'] or '-'}", columns, rows))
    for text in report["differs"]:
        note(f"differs: {text}")
    if report["flaws"]:
        note(f"known flaws: {report['flaws']}")
    for text in report["unconfirmed"]:
        note(f"unconfirmed: {text}")
    click.echo(f"{name} is whole; fingerprint of this stream: {report['fingerprint']}")


def _examined(name: str, root: Path | None, split: str | None) -> dict[str, Any]:
    from lw2g.config.structure import structure
    from lw2g.registry.catalogue import load_catalogue

    component = load_catalogue().get("benchmark", name)
    options: Mapping[str, Any] = {"root": root and str(root.absolute()), "split": split}
    config, problems = structure(
        component.config, {key: value for key, value in options.items() if value is not None}
    )
    if config is None:
        raise ConfigError("\n".join(f"benchmark.{key}: {text}" for key, text in problems))
    stream: TaskStream = component.build(config).stream()
    _require_decodable(stream)
    ids = {part: [value for task in stream.tasks for value in getattr(task, part).ids] for part in _SPLITS}
    return {
        "name": name,
        "split": getattr(config, "split", None),
        "classes": _classes(stream),
        "sha256": {part: _list_sha256(ids[part]) for part in _SPLITS},
        "fingerprint": stream.fingerprint,
        "differs": list(stream.deviations),
        "flaws": component.data.flaws if component.data is not None else "",
        "unconfirmed": list(component.data.unconfirmed) if component.data is not None else [],
    }


def _require_decodable(stream: TaskStream) -> None:
    """Decode every image of a stream.

    Raises:
        DataError: Some images cannot be decoded; the message names the first.
    """
    from concurrent.futures import ThreadPoolExecutor

    parts = [part for task in stream.tasks for part in (task.train, task.test)]

    def fault(place: tuple[TaskData, int]) -> str | None:
        part, index = place
        try:
            part.source.image(index)
        except DataError as error:
            return str(error)
        return None

    places = [(part, int(index)) for part in parts for index in part.indices]
    with ThreadPoolExecutor() as pool, Bars(counted=True) as progress:
        faults = []
        for done, message in enumerate(pool.map(fault, places), 1):
            progress.report("decoding", done, len(places))
            faults += [] if message is None else [message]
    if faults:
        raise DataError(f"{len(faults)} of {len(places)} images cannot be used, first {faults[0]}")


def _classes(stream: TaskStream) -> dict[str, dict[str, int]]:
    counts = {}
    for task in stream.tasks:
        for position in task.classes:
            name = stream.class_names[position]
            counts[name] = {part: int((getattr(task, part).labels == position).sum()) for part in _SPLITS}
    return counts


def _list_sha256(ids: list[str]) -> str:
    import hashlib

    return hashlib.sha256("\n".join(sorted(ids)).encode()).hexdigest()


@data.command(short_help="Find the class order whose neighbouring tasks are most, or least, alike.")
@click.argument("name", shell_complete=complete_component("benchmark"))
@click.argument("kind", type=click.Choice(["similar", "dissimilar"]))
@click.option("--backbone", metavar="NAME", help="The frozen backbone whose features are compared.")
@click.option("--weights", metavar="FILE", type=click.Path(path_type=Path), help="Its weights file.")
@click.option("--seed", type=click.IntRange(min=0), default=0, help="Where the search begins. [default: 0]")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="A file instead of the output.")
@settings_option("An option of the benchmark or backbone, such as benchmark.root=FOLDER; repeatable.")
def order(
    name: str,
    kind: str,
    backbone: str | None,
    weights: Path | None,
    seed: int,
    out: Path | None,
    settings: Sequence[tuple[str, Any]],
) -> None:
    """Print a configuration with the classes of the benchmark NAME in such an order.

    Tasks are compared by the mean features of 20 training images a class, before anything is trained. The
    order is knowledge of the protocol, not of a method: the record of a run holds it as a list.
    """
    import tomli_w

    from lw2g.config.resolve import resolve
    from lw2g.data.orders import adjacent_similarity, class_means, order_by_similarity
    from lw2g.registry.catalogue import load_catalogue

    catalogue = load_catalogue()
    config = resolve(
        catalogue,
        overrides=dict(settings),
        baseline="simple-cil",
        benchmark=name,
        backbone=backbone,
        weights=weights,
    ).config
    benchmark = catalogue.get("benchmark", name).build(config.benchmark.config)
    stream: TaskStream = benchmark.stream()
    if len(stream.tasks) < 2 or stream.targets is not None:
        raise ConfigError("only disjoint tasks of classes have such an order", "use benchmark.stream=classes")
    chosen = config.backbone
    model = catalogue.get("backbone", chosen.name).build(chosen.config, chosen.weights, chosen.image_size)
    known = model.fingerprint
    still = benchmark.transforms(known.image_size, known.mean, known.std).test
    means, sizes = class_means(stream, model, still), [len(task.classes) for task in stream.tasks]
    found = order_by_similarity(means, sizes, alike=kind == "similar", seed=seed)
    before, after = adjacent_similarity(means, sizes), adjacent_similarity(means[found], sizes)
    note(f"mean cosine of neighbouring tasks: {after:.3f}, in the order as it was {before:.3f}")
    names = [stream.class_names[row] for row in found]
    text = tomli_w.dumps({"benchmark": {"name": name, "class_order": names}})
    if out is None:
        click.echo(text, nl=False)
    else:
        out.write_text(text, encoding="utf-8")
