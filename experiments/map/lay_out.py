"""Lay out the streams of the map as folders that link to those of the data.

    python experiments/map/lay_out.py --data DATA --out DATA/map [--orders 3]

DATA has ``cifar100``, ``caltech`` and ``pacs``, each ``{train,test}/NUMBER_class``. Written are
``OUT/ORDER/STREAM/{train,test}/NUMBER_class``, numbered as tasks bring them. A pair ``NAME-unlike`` and
``NAME-alike`` has the same classes and images: a task of the first holds one kind (a superclass, a data set,
a domain), a task of the second as many kinds as it can. Kinds come in turn, so the sets that a person would
choose are the same for every order (the maps in ``map.toml``).
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "growth"))
from streams import KINDS

Classes = list[Path]
"""Folders below ``train``, in the order of the stream."""


def folders(data: Path) -> dict[str, Path]:
    """Return the folder of each class of a data set by the class's name."""
    found = sorted((data / "train").iterdir())
    return {path.name.partition("_")[2].removesuffix("_tree"): path for path in found}


def blended(groups: Sequence[Classes], size: int) -> Classes:
    """Return the classes of all groups so that each task of ``size`` has as many groups as it can.

    Groups that are as long as a task is wide are dealt in blocks, so that each task gets one class of each.
    """
    if all(len(group) == size for group in groups):
        blocks = [groups[first : first + size] for first in range(0, len(groups), size)]
        return [group[turn] for block in blocks for turn in range(size) for group in block]
    return [path for turn in zip(*groups, strict=True) for path in turn]


def cifar(data: Path, draw: random.Random) -> dict[str, Classes]:
    """Two superclasses of each of five kinds, kinds in turn: 10 tasks of 5."""
    known = folders(data / "cifar100")
    kinds = [draw.sample(list(kind.values()), 2) for kind in KINDS.values()]
    draw.shuffle(kinds)
    groups = [[known[name] for name in kind[turn].split()] for turn in range(2) for kind in kinds]
    return {"cifar-unlike": [*chain(*groups)], "cifar-alike": blended(groups, 5)}


def turns(data: Path, draw: random.Random) -> dict[str, Classes]:
    """CIFAR-100, PACS (five classes of a domain) and Caltech-101 in turn: 12 tasks of 5."""
    pools = [list(folders(data / name).values()) for name in ("cifar100", "caltech")]
    for pool in pools:
        draw.shuffle(pool)
    domains = [domain[:5] for domain in _domains(data, draw)]
    parts = [pools[0][:20], [*chain(*domains)], pools[1][:20]]
    unlike = [path for turn in range(0, 20, 5) for part in parts for path in part[turn : turn + 5]]
    spread = [parts[0], blended(domains, 5), parts[2]]
    return {"turns-unlike": unlike, "turns-alike": blended(spread, 5)}


def _domains(data: Path, draw: random.Random) -> list[Classes]:
    every = list(folders(data / "pacs").values())
    domains = [every[first : first + 7] for first in range(0, len(every), 7)]
    draw.shuffle(domains)
    for domain in domains:
        draw.shuffle(domain)
    return domains


def pacs(data: Path, draw: random.Random) -> dict[str, Classes]:
    """Six classes of each of four domains: 8 tasks of 3."""
    domains = [domain[:6] for domain in _domains(data, draw)]
    unlike = [path for turn in (0, 3) for domain in domains for path in domain[turn : turn + 3]]
    return {"pacs-unlike": unlike, "pacs-alike": blended(domains, 3)}


def caltech(data: Path, draw: random.Random) -> dict[str, Classes]:
    """Fifty classes at random: 10 tasks of 5. Choices are made here."""
    return {"caltech": draw.sample(list(folders(data / "caltech").values()), 50)}


def long(data: Path, draw: random.Random) -> dict[str, Classes]:
    """All of CIFAR-100 at random: 50 tasks of 2."""
    return {"long": draw.sample(list(folders(data / "cifar100").values()), 100)}


def main() -> None:
    """Link the folders."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the unpacked data sets")
    parser.add_argument("--out", type=Path, required=True, help="folder of the streams")
    parser.add_argument("--orders", type=int, default=3)
    arguments = parser.parse_args()
    for order in range(arguments.orders):
        for make in (cifar, turns, pacs, caltech, long):
            for name, classes in make(arguments.data, random.Random(f"{make.__name__} {order}")).items():
                for number, folder in enumerate(classes):
                    for split in ("train", "test"):
                        link = arguments.out / str(order) / name / split / f"{number:03d}_{folder.name[4:]}"
                        link.parent.mkdir(parents=True, exist_ok=True)
                        link.symlink_to((folder.parents[1] / split / folder.name).resolve())


if __name__ == "__main__":
    main()
