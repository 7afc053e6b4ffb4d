"""Lay out the domains that ``streams_*.toml`` read: ``OUT/{pacs,glyphs}/<domain>/{train,test}/<class>/*``.

    python experiments/growth/lay_out.py --pacs DATA/pacs --out DATA

PACS is unpacked as ``{train,test}/NUMBER_domain-class``. Of glyphs, four classes of each of five families,
a "domain" is a visit: a third of the images of all classes, so that classes come again with other images.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from PIL import Image

from lw2g_benchmarks.glyphs import GlyphsBenchmark
from lw2g_benchmarks.options import GlyphsConfig

VISITS = 3


def pacs(source: Path, out: Path) -> None:
    """Link the images of each domain and class."""
    for split in ("train", "test"):
        for folder in sorted((source / split).iterdir()):
            domain, _, name = folder.name.partition("_")[2].rpartition("-")
            target = out / domain / split / name
            target.mkdir(parents=True, exist_ok=True)
            for image in folder.iterdir():
                (target / image.name).symlink_to(image.resolve())


def glyphs(out: Path) -> None:
    """Write glyphs, the images of a class in turn to each visit."""
    config = GlyphsConfig(classes_per_family=4, increment=4, train_per_class=60, test_per_class=30)
    made = GlyphsBenchmark(config).stream()
    for task in made.tasks:
        for split, data in (("train", task.train), ("test", task.test)):
            for count, index in enumerate(data.indices.tolist()):
                name, number = data.source.ids[index].split("/")[1:]
                target = out / f"visit-{count % VISITS}" / split / name
                target.mkdir(parents=True, exist_ok=True)
                pixels = data.source.image(index).permute(1, 2, 0).numpy()
                Image.fromarray(pixels).save(target / f"{int(number):02d}.png")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pacs", type=Path, required=True, help="unpacked PACS")
    parser.add_argument("--out", type=Path, required=True, help="folder of the laid-out images")
    arguments = parser.parse_args()
    pacs(arguments.pacs, arguments.out / "pacs")
    glyphs(arguments.out / "glyphs")
