"""Lay out the streams of the study as folders of images.

    python experiments/carries/lay_out.py --data ARCHIVES --out DATA

ARCHIVES holds the data sets as zips of sheets, one WebP sheet a class and split, beside a JSON file with
classes and counts. Written are ``DATA/images/SET/{train,test}/NUMBER_class/NUMBER.png`` and, as links,
``DATA/STREAM/ORDER/{train,test}/NUMBER_class``, numbered as tasks bring them. ``experiments/streams.toml``
says what each stream is for; a stream whose images or labels differ from its hash there is refused. Printed
is the command that trains a row on each stream, under the conditions of ``docs/use.md``.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import random
import shlex
import tomllib
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain, permutations
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

STREAMS = Path(__file__).resolve().parents[1] / "streams.toml"

MOST = {
    "cifar100": (50, 20),
    "caltech100_128": (30, 20),
    "pacs_128": (60, 20),
    "tinyimagenet200_64": (40, 10),
    "gtsrb_32": (60, 40),
    "trashnet_160.first": (50, 20),
    "trashnet_160.second": (50, 20),
}
"""The sets, and the training and test images that are taken of a class: the first ones of its sheet. What
stands behind a point is a part of a set."""

SKIPPED = {"trashnet_160.second": (50, 20)}
"""The images of a sheet that belong to the part before."""

SEEN_OBJECTS = ("dog", "elephant", "giraffe")
"""Objects of PACS in development streams; those of report streams are the others."""

Classes = list[Path]
"""Folders of classes below ``train``, in the order of a stream."""


def unpack(archives: Path, name: str, out: Path) -> None:
    """Write the first images of each class of a set, or of its part, as PNG files."""
    archived, _, _ = name.partition(".")
    facts = json.loads((archives / f"{archived}.json").read_text())
    side = facts["size"]
    for archive in sorted(archives.glob(f"{archived}*.zip")):
        with zipfile.ZipFile(archive) as members:
            for member in members.namelist():
                split, _, sheet = member.partition("/")
                number = int(sheet[:3])
                first = SKIPPED.get(name, (0, 0))[split == "test"]
                most = min(MOST[name][split == "test"], facts["counts"][split][number] - first)
                label = facts["classes"][number].replace("/", "-")
                folder = out / name / split / f"{number:03d}_{label}"
                if len([*folder.glob("*.png")]) == most:
                    continue
                folder.mkdir(parents=True, exist_ok=True)
                pixels = np.asarray(Image.open(io.BytesIO(members.read(member))).convert("RGB"))
                rows, columns = pixels.shape[0] // side, pixels.shape[1] // side
                images = (
                    pixels.reshape(rows, side, columns, side, 3).swapaxes(1, 2).reshape(-1, side, side, 3)
                )
                for place in range(first, first + most):
                    Image.fromarray(images[place]).save(folder / f"{place:03d}.png")


def streams(images: Path) -> dict[str, list[Classes]]:
    """Return the classes of each stream, in the order of each of its orders."""
    cifar, caltech, pacs, tiny, signs, *waste = (sorted((images / name / "train").iterdir()) for name in MOST)
    return {
        "caltech": [_drawn("caltech", order, caltech) for order in range(5)],
        "cifar-first": [_drawn("cifar-first", order, cifar[:50]) for order in range(5)],
        "pacs-photo-cartoon": [_domains("pacs-photo-cartoon", order, pacs, 3) for order in range(5)],
        "turns-small": [_turns_small(order, cifar[:50], pacs, caltech) for order in range(5)],
        "turns": [_turns(order, cifar[50:], pacs, caltech) for order in range(6)],
        "pacs-art-sketch": [_domains("pacs-art-sketch", order, pacs, 2) for order in range(5)],
        "cifar-second": [_drawn("cifar-second", order, cifar[50:]) for order in range(5)],
        "tiny": [_drawn("tiny", order, tiny)[:50] for order in range(5)],
        "signs-first": [_drawn("signs-first", order, signs[:21]) for order in range(5)],
        "signs-second": [_drawn("signs-second", order, signs[21:]) for order in range(5)],
        "waste-first": [_drawn("waste-first", order, waste[0]) for order in range(5)],
        "waste-second": [_drawn("waste-second", order, waste[1]) for order in range(5)],
    }


def _drawn(stream: str, order: int, classes: Classes) -> Classes:
    return random.Random(f"{stream} {order}").sample(classes, len(classes))


def _of_domain(pacs: Classes, domain: str) -> Classes:
    return [path for path in pacs if path.name[4:].startswith(domain)]


def _seen(path: Path) -> bool:
    return path.name.rpartition("-")[2] in SEEN_OBJECTS


def _domains(stream: str, order: int, pacs: Classes, increment: int) -> Classes:
    """Return the classes of two domains in turn: the seen objects of photo and cartoon, or the others."""
    draw = random.Random(f"{stream} {order}")
    development = stream == "pacs-photo-cartoon"
    names = ["photo", "cartoon"] if development else ["art_painting", "sketch"]
    draw.shuffle(names)
    pools = []
    for name in names:
        pool = [path for path in _of_domain(pacs, name) if _seen(path) == development]
        pools.append(draw.sample(pool, len(pool)))
    return _in_turn(pools, increment)


def _in_turn(pools: Sequence[Classes], increment: int) -> Classes:
    """Return the classes of all pools, so many of each in turn."""
    starts = range(0, len(pools[0]), increment)
    return [*chain.from_iterable(pool[start : start + increment] for start in starts for pool in pools)]


def _turns(order: int, cifar: Classes, pacs: Classes, caltech: Classes) -> Classes:
    """Return 20 classes of each of three kinds of images, five in turn; a task of PACS has one domain.

    The six orders are those of the kinds, each with classes of its own.
    """
    draw = random.Random(f"turns report {order}")
    domains = draw.sample(["art_painting", "cartoon", "photo", "sketch"], 4)
    drawings = [*chain.from_iterable(draw.sample(_of_domain(pacs, domain), 5) for domain in domains)]
    kinds = {"cifar": draw.sample(cifar, 20), "pacs": drawings, "caltech": draw.sample(caltech, 20)}
    return _in_turn([kinds[name] for name in [*permutations(kinds)][order]], 5)


def _turns_small(order: int, cifar: Classes, pacs: Classes, caltech: Classes) -> Classes:
    """Return six classes of each of three kinds of images, three in turn."""
    draw = random.Random(f"turns-small {order}")
    drawings = _domains("pacs-photo-cartoon", order, pacs, 3)
    kinds = {"cifar": draw.sample(cifar, 6), "pacs": drawings, "caltech": draw.sample(caltech, 6)}
    return _in_turn([kinds[name] for name in [*permutations(kinds)][order]], 3)


def hash_of(classes: Classes, limits: Mapping[str, int], each: Callable[..., Iterable[bytes]] = map) -> str:
    """Return the SHA-256 of the images of some classes and their labels, whatever their order.

    Args:
        classes: Their folders below ``train``.
        limits: The greatest number of images of a class by split.
        each: What calls a function on each class, in their order; that of a pool reads them side by side.
    """
    digest = hashlib.sha256()
    ordered = sorted(classes, key=lambda path: (path.parents[1].name, path.name))
    for content in each(partial(_content, limits=limits), ordered):
        digest.update(content)
    return digest.hexdigest()


def _content(folder: Path, limits: Mapping[str, int]) -> bytes:
    """Return the labels and pixels of a class, one after the other."""
    parts = []
    for split, limit in sorted(limits.items()):
        own = folder.parents[1] / split / folder.name
        for image in sorted(own.glob("*.png"))[:limit]:
            parts.append(f"{folder.parents[1].name}/{split}/{folder.name}\n".encode())
            parts.append(np.asarray(Image.open(image).convert("RGB")).tobytes())
    return b"".join(parts)


def run_command(stream: str, facts: Mapping[str, Any], data: Path) -> str:
    """Return what trains a row of the tables on order 0 of a stream.

    The folders hold images that the tables leave out, so that the command names the numbers of a class.

    Args:
        stream: Its name.
        facts: What ``streams.toml`` tells of it.
        data: Where the streams are laid out.
    """
    options = {"benchmark.root": shlex.quote(str(data / stream / "0"))}
    for name in ("increment", "train_per_class", "test_per_class"):
        options[f"benchmark.{name}"] = facts[name]
    if "classes" in facts:
        # of which the last task has fewer
        options["benchmark.uneven"] = "true"
    chosen = " ".join(f"--set {name}={value}" for name, value in options.items())
    return f"lw2g run conditions.toml --trained {chosen} --seed 0"


OTHER_ORDERS = "another order K: K in place of the folder's 0 and of the seed"
"""What stands below these commands."""


def missing(archives: Path) -> list[str]:
    """Return the names of the files that a folder of archives lacks."""
    sets = dict.fromkeys(name.partition(".")[0] for name in MOST)
    names = [f"{archived}{ending}" for archived in sets for ending in (".json", "*.zip")]
    return [name for name in names if not any(archives.glob(name))]


def main() -> None:
    """Unpack the sets, check the streams against their hashes, and link them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the archives")
    parser.add_argument("--out", type=Path, required=True, help="folder of the streams")
    parser.add_argument("--print", action="store_true", help="print the hashes instead of checking them")
    arguments = parser.parse_args()
    lacking = ", ".join(missing(arguments.data))
    if lacking:
        parser.exit(
            2,
            f"error: {str(arguments.data)!r} lacks {lacking}; --data is a folder of zips of sheets, one WebP "
            "sheet a class and split, each set beside a JSON file with classes and counts\n",
        )
    known = tomllib.loads(STREAMS.read_text())["stream"]
    for name in MOST:
        unpack(arguments.data, name, arguments.out / "images")
    for stream, orders in streams(arguments.out / "images").items():
        facts = known[stream]
        limits = {"train": facts["train_per_class"], "test": facts["test_per_class"]}
        hashes = list(dict.fromkeys(hash_of(classes, limits) for classes in orders))
        if arguments.print:
            print(stream, json.dumps(hashes, indent=4))
        elif hashes != facts["sha256"]:
            raise SystemExit(
                f"{stream}: images or labels differ from those of {STREAMS.name}; look at the archives"
            )
        for order, classes in enumerate(orders):
            _link(classes, arguments.out / stream / str(order))
        if not arguments.print:
            print(run_command(stream, facts, arguments.out))
    if not arguments.print:
        print(OTHER_ORDERS)


def _link(classes: Classes, out: Path) -> None:
    for number, folder in enumerate(classes):
        for split in ("train", "test"):
            link = out / split / f"{number:03d}_{folder.name[4:]}"
            link.parent.mkdir(parents=True, exist_ok=True)
            if not link.is_symlink():
                link.symlink_to((folder.parents[1] / split / folder.name).resolve())


if __name__ == "__main__":
    main()
