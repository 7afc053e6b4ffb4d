"""Lay out all of CIFAR-100 and store its features: 60,000 images, ten to thirty minutes of a core.

    python experiments/frozen/whole.py --archives ARCHIVES --data DATA --weights FILE --out FEATURES
    python experiments/frozen/heads.py --streams cifar-whole --no-strangers --data DATA
        --features FEATURES --out experiments/frozen/cells

The classes lie in twenty sets of five, ``DATA/images/cifar100_whole.NN``, each with a file of features of its
own, so that an interrupted run goes on with the set in which it stopped. The stream ``cifar-whole`` links all
of them, as those with fewer images of each class do: order 0 is the official one, orders 1 and 2 are drawn.
``ARCHIVES`` is that of ``experiments/carries/lay_out.py``. Trained rows need no features: with
``--layout-only`` none are computed. Printed is the command that trains a row on each stream.
"""

from __future__ import annotations

import argparse
import io
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import torch
from PIL import Image

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent / "carries"))

from features import LAYERS, command, keep_own, write_own  # noqa: E402
from lay_out import OTHER_ORDERS, STREAMS, Classes, _drawn, _link, hash_of, run_command  # noqa: E402

from lw2g.cli.main import main as lw2g  # noqa: E402

SIDE = 32
CLASSES_OF_SET = 5
LIMITS = {"train": 500, "test": 100}


ORDERS = 3


def unpack(archives: Path, images: Path, pool: ProcessPoolExecutor) -> Classes:
    """Write all images as PNG files that are not there yet, and return the folders of training classes."""
    sheets = [*_sheets(archives, images)]
    missing = [sheet for sheet in sheets if len([*sheet[2].glob("*.png")]) < LIMITS[sheet[2].parent.name]]
    for _ in pool.map(_write, missing):
        pass
    folders = [folder for _, _, folder in sheets if folder.parent.name == "train"]
    return sorted(folders, key=lambda path: path.name)


Sheet = tuple[Path, str, Path]
"""An archive, a sheet in it, and the folder of its images."""


def _sheets(archives: Path, images: Path) -> Iterator[Sheet]:
    for archive in sorted(archives.glob("cifar100_*.zip")):
        with zipfile.ZipFile(archive) as members:
            for member in members.namelist():
                split, _, sheet = member.partition("/")
                number = int(sheet[:3]) // CLASSES_OF_SET
                yield archive, member, images / f"cifar100_whole.{number:02d}" / split / Path(sheet).stem


def _write(found: Sheet) -> None:
    archive, member, folder = found
    with zipfile.ZipFile(archive) as members:
        sheet = members.read(member)
    folder.mkdir(parents=True, exist_ok=True)
    pixels = np.asarray(Image.open(io.BytesIO(sheet)).convert("RGB"))
    rows, columns = pixels.shape[0] // SIDE, pixels.shape[1] // SIDE
    images = pixels.reshape(rows, SIDE, columns, SIDE, 3).swapaxes(1, 2).reshape(-1, SIDE, SIDE, 3)
    for place in range(LIMITS[folder.parent.name]):
        Image.fromarray(images[place]).save(folder / f"{place:03d}.png", compress_level=1)


def orders(classes: Classes) -> list[Classes]:
    """Return the classes in each order of the stream: the official one, then drawn ones."""
    return [classes, *(_drawn("cifar-whole", order, classes) for order in range(1, ORDERS))]


def lay_out(archives: Path, data: Path) -> None:
    """Write the images and link the orders, on all cores.

    Raises:
        SystemExit: The images are not those of ``experiments/streams.toml``.
    """
    with ProcessPoolExecutor() as pool:
        classes = unpack(archives, data / "images", pool)
        found = hash_of(classes, LIMITS, pool.map)
    known = tomllib.loads(STREAMS.read_text())["stream"]
    if [found] != known["cifar-whole"]["sha256"]:
        raise SystemExit(
            f"the images have the hash {found}, not that of {STREAMS.name}; look at the archives"
        )
    named = [name for name, facts in known.items() if "cifar-whole" in (name, facts.get("orders_of"))]
    for order, own in enumerate(orders(classes)):
        for name in named:
            _link(own, data / name / str(order))
    for name in named:
        print(run_command(name, known[name], data))
    print(OTHER_ORDERS)


def main() -> None:
    """Lay out what is not laid out, and store what is not stored yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("archives", "data"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--layout-only", action="store_true", help="compute no features")
    for name in ("weights", "out"):
        parser.add_argument(f"--{name}", type=Path, help="of features; needed without --layout-only")
    arguments = parser.parse_args()
    features = arguments.weights and arguments.out
    if not (arguments.layout_only or features):
        parser.error("--weights and --out are needed; to compute no features, give --layout-only")
    lay_out(arguments.archives, arguments.data)
    if arguments.layout_only:
        return
    arguments.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    images = arguments.data / "images"
    kept = keep_own()
    for folder in sorted(images.glob("cifar100_whole.*")):
        own, joined = (arguments.out / f"{folder.name}.{layers}.npz" for layers in (1, LAYERS))
        if own.exists():
            continue
        for half in (joined, joined.with_name(f"{joined.name}.part")):
            half.unlink(missing_ok=True)
        kept.clear()
        limits = (LIMITS["train"], LIMITS["test"])
        lw2g(command(folder, limits, arguments.weights, joined), standalone_mode=False)
        write_own(joined, kept, own)


if __name__ == "__main__":
    main()
