"""Lay out the streams of the map as folders that link to those of the data.

    python experiments/map/lay_out.py --data DATA --out DATA/map

DATA has ``cifar100``, ``caltech`` and ``pacs``, each ``{train,test}/NUMBER_class``. Written are
``OUT/ORDER/STREAM/{train,test}/NUMBER_class`` for orders 0 to 2, numbered as tasks bring them. A pair
``NAME-unlike`` and ``NAME-alike`` has the same classes and images: a task of the first holds one kind (a
superclass, a data set, a domain), a task of the second as many kinds as it can. Kinds come in turn, so the
sets that a person would choose are the same for every order (the maps in ``map.toml``).
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


def dealt(groups: Sequence[Classes]) -> Classes:
    """Return the classes of all groups, one of each in turn."""
    return [*chain(*zip(*groups, strict=True))]


def streams(data: Path, order: int) -> dict[str, Classes]:
    """Return the streams of one order by name."""
    cifar, caltech, pacs = (
        sorted((data / name / "train").iterdir()) for name in ("cifar100", "caltech", "pacs")
    )
    known = {path.name.partition("_")[2].removesuffix("_tree"): path for path in cifar}

    def domains(draw: random.Random) -> list[Classes]:
        found = [pacs[first : first + 7] for first in range(0, 28, 7)]
        draw.shuffle(found)
        for domain in found:
            draw.shuffle(domain)
        return found

    draw = random.Random(f"cifar {order}")
    kinds = [draw.sample(list(kind.values()), 2) for kind in KINDS.values()]
    draw.shuffle(kinds)
    first, second = ([[known[name] for name in kind[turn].split()] for kind in kinds] for turn in range(2))
    draw = random.Random(f"turns {order}")
    ends = [list(pool) for pool in (cifar, caltech)]
    for pool in ends:
        draw.shuffle(pool)
    ends = [pool[:20] for pool in ends]
    five = [domain[:5] for domain in domains(draw)]
    six = [domain[:6] for domain in domains(random.Random(f"pacs {order}"))]
    parts = [ends[0], [*chain(*five)], ends[1]]
    return {
        "caltech": random.Random(f"caltech {order}").sample(caltech, 50),
        "cifar-unlike": [*chain(*first, *second)],
        "cifar-alike": dealt(first) + dealt(second),
        "turns-unlike": [one for at in range(0, 20, 5) for part in parts for one in part[at : at + 5]],
        "turns-alike": dealt([ends[0], dealt(five), ends[1]]),
        "pacs-unlike": [one for at in (0, 3) for domain in six for one in domain[at : at + 3]],
        "pacs-alike": dealt(six),
        "long": random.Random(f"long {order}").sample(cifar, 100),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the unpacked data sets")
    parser.add_argument("--out", type=Path, required=True, help="folder of the streams")
    arguments = parser.parse_args()
    for order in range(3):
        for stream, classes in streams(arguments.data, order).items():
            for number, folder in enumerate(classes):
                for split in ("train", "test"):
                    link = arguments.out / str(order) / stream / split / f"{number:03d}_{folder.name[4:]}"
                    link.parent.mkdir(parents=True, exist_ok=True)
                    link.symlink_to((folder.parents[1] / split / folder.name).resolve())
