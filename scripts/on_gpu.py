"""Measure lw2g on a GPU, what decides first, and run the cells of grids side by side, in slices of time.

    python scripts/on_gpu.py --out runs/gpu --minutes 9
    python scripts/on_gpu.py --out runs/gpu --minutes 9 --parts cells --jobs 8 --grid GRID.toml

Needs the working tree alone: lw2g need not be installed. Pure-Python wheels that the machine lacks are taken
from ``--wheels``. With the same ``--out`` it goes on where it stopped; nothing is measured twice.
Without a GPU (``--device cpu --toy``) every part runs at toy size, which says nothing but that it runs.
"""

from __future__ import annotations

import argparse
import os
import sys
import tomllib
import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of results.json and results.md")
    parser.add_argument("--minutes", type=float, default=9, help="stop cleanly after that long")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N or cpu")
    parser.add_argument("--parts", default="steps,cells", help="separated by commas")
    parser.add_argument("--model", default="vit_base_patch16_224", help="timm architecture of the steps")
    parser.add_argument("--baselines", default="dual-prompt,hide-prompt,ranpac", help="of the steps")
    parser.add_argument("--modes", default="bf16,compiled,float32", help="of the steps")
    parser.add_argument("--again", action="store_true", help="do once more what failed")
    parser.add_argument("--toy", action="store_true", help="a random ViT of 16 pixels, two steps")
    parser.add_argument(
        "--grid", type=Path, action="append", default=[], help="grid whose cells are run; repeatable"
    )
    parser.add_argument(
        "--set", dest="settings", action="append", default=[], metavar="KEY=VALUE", help="of all cells"
    )
    parser.add_argument("--jobs", type=int, default=1, help="cells at a time on the device")
    parser.add_argument("--wheels", type=Path, help="folder of wheels that the machine lacks")
    return parser.parse_args()


def make_importable(out: Path, wheels: Path | None) -> None:
    """Put the working tree, unpacked wheels and lw2g's entry points where this and child processes look.

    What the machine has goes before what is carried.
    """
    site = out / "site"
    site.mkdir(parents=True, exist_ok=True)
    for wheel in sorted(wheels.glob("*.whl")) if wheels else []:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
    before = [str(ROOT), str(ROOT / "plugins")]
    sys.path[1:1] = before
    sys.path.append(str(site))
    try:
        distribution("lw2g")
    except PackageNotFoundError:
        write_metadata(site)
    kept = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [*before, kept, str(site)]))


def write_metadata(site: Path) -> None:
    """Write what an installation would say of lw2g: its name and entry points, by which plugins are found."""
    import lw2g  # found only now that the working tree is on the path

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    folder = site / f"lw2g-{lw2g.__version__}.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: lw2g\nVersion: {lw2g.__version__}\n", encoding="utf-8"
    )
    points = [f"{name} = {where}" for name, where in project["entry-points"]["lw2g"].items()]
    (folder / "entry_points.txt").write_text("\n".join(["[lw2g]", *points, ""]), encoding="utf-8")


def main() -> None:
    """Run the parts that are asked for, as far as the time goes."""
    given = arguments()
    make_importable(given.out.resolve(), given.wheels)
    from gpu import PARTS
    from gpu.lab import Lab

    names = [part.name for part in PARTS]
    unknown = sorted(set(given.parts.split(",")) - set(names))
    if unknown:
        sys.exit(f"unknown parts {unknown!r}; there are {', '.join(names)}")
    if given.toy:
        given.model = "toy"
    Lab.of(given).measure([part for part in PARTS if part.name in given.parts.split(",")])


if __name__ == "__main__":
    main()
