"""Take the pictures of the page that teaches and of a report, in light and in dark, for docs/pictures.

    python scripts/shoot_pages.py teach PHOTOS --weights vit_tiny.safetensors
    python scripts/shoot_pages.py report

PHOTOS holds sample photographs of scikit-image that are in the public domain: ``chelsea.png`` and
``coffee.png`` (CC0 by their photographers), ``rocket.jpg`` (SpaceX) and ``astronaut.png`` (NASA). Each is cut
into crops, a class each. The rocket is taught on the page, and crops that were not learned from are tried.

The report is of packs of ``experiments/store``: nothing is run.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

import numpy as np
from PIL import Image

from lw2g.config.directory import CELLS

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "pictures"
FILES = {
    "cat": "chelsea.png",
    "coffee": "coffee.png",
    "astronaut": "astronaut.png",
    "rocket": "rocket.jpg",
}
TAUGHT = "rocket"
NUM_CROPS, NUM_TRIED = 20, 3
SCHEMES = ("light", "dark")
WIDTHS = {"": 900, "-narrow": 390}
"""The widths of pictures by the end of their names: as wide as a README, and as a telephone."""
HIDDEN = "h1, .top, [id$=-tasks], [id$=-confused], .conditions, .contents, .remarks, .reading, details"
"""What the report's pictures leave out: the page around them has the conditions."""
PACKS = ROOT / "experiments" / "store" / "runs" / "folder" / "like-for-like" / "cifar-second.0.224@1"
TRAINED = "training (--trained)"
ROWS = {
    "the frozen answer (--recommended)": "simple-cil_auto/d00db3ca162a",
    TRAINED: "slca-plus-plus_always_auto/dbf4000d4e4f",
    "hide-prompt": "hide-prompt_always_linear_classifier/352a1cadbb9d",
}
"""The rows of the report and their packs; frozen_words.py tells below the picture how other orders end."""


def cut(photos: Path, out: Path) -> None:
    """Write crops of each photograph: most into ``known`` and ``new``, the rest into ``tried``."""
    for name, file in FILES.items():
        draw = np.random.default_rng(0)
        with Image.open(photos / file) as opened:
            photo = opened.convert("RGB")
        side = min(photo.size)
        for number in range(NUM_CROPS + 1):
            part = int(side * draw.uniform(0.6, 0.95))
            left = int(draw.integers(0, photo.width - part + 1))
            top = int(draw.integers(0, photo.height - part + 1))
            crop = photo.crop((left, top, left + part, top + part)).resize((224, 224))
            kind = "tried" if number == NUM_CROPS else "new" if name == TAUGHT else "known"
            folder = out / kind / name
            folder.mkdir(parents=True, exist_ok=True)
            crop.save(folder / f"{name}-{number:02d}.jpg")


@contextmanager
def tab(scheme: str, width: int, height: int) -> Iterator[Any]:
    """Yield a page of a browser without a window."""
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser.new_page(
            viewport={"width": width, "height": height}, color_scheme=scheme, device_scale_factor=1
        )
        browser.close()


def shoot_teach(photos: Path, weights: Path | None) -> None:
    """Take the page after one class was taught and three crops were tried."""
    import lw2g
    from lw2g.registry.catalogue import load_catalogue
    from lw2g_photos.classroom import Classroom
    from lw2g_photos.server import Server

    photos, weights = photos.absolute(), weights and weights.absolute()
    with TemporaryDirectory() as made, chdir(made):  # the page names models from where its command was typed
        place = Path(made)
        cut(photos, place)
        for scheme in SCHEMES:
            for folder in place.glob("model*"):  # both pictures show the first step
                shutil.rmtree(folder)
            lw2g.start(place / "known", place / "model", backbone="vit-tiny", weights=weights)
            classroom = Classroom(place / "model", load_catalogue(), weights=weights)
            with Server(classroom) as server, tab(scheme, 1000, 900) as page:
                thread = Thread(target=server.serve_forever, args=(0.01,))
                thread.start()
                page.goto(server.address)
                page.set_input_files("#folders", place / "new" / TAUGHT)
                page.wait_for_selector("#message:has-text('learned')", timeout=60_000)
                tried = sorted((place / "tried").rglob("*.jpg"))
                wanted = [path for path in tried if path.parent.name != "coffee"]
                page.set_input_files("#image", wanted)
                page.wait_for_selector(f".tried >> nth={NUM_TRIED - 1}")
                page.evaluate("document.getElementById('message').hidden = true")
                for suffix, width in WIDTHS.items():
                    page.set_viewport_size({"width": width, "height": 900})
                    last = page.locator(".tried").last.bounding_box()
                    clip = {"x": 0, "y": 0, "width": width, "height": last["y"] + last["height"] + 32}
                    taken = page.screenshot(full_page=True, clip=clip)
                    keep(taken, f"teach{suffix}-{scheme}.png", 256)
                server.shutdown()
                thread.join()
            classroom.close()


def copy_named(out: Path) -> None:
    """Copy the packs of the report into a folder, with a list that names its rows as a sweep does."""
    cells = []
    for number, (row, pack) in enumerate(ROWS.items()):
        shutil.copytree(PACKS / pack, out / str(number))
        cells.append({"name": str(number), "row": row})
    (out / CELLS).write_text(json.dumps({"cells": cells}), encoding="utf-8")


def shoot_report() -> None:
    """Take pictures of a report on the packs."""
    from lw2g_page.reporting import report

    with TemporaryDirectory() as made:
        place = Path(made)
        copy_named(place / "runs")
        # no seconds: the packs are of several machines
        shoot_results(report(place / "runs", columns=["faa", "ffm"]).save(place / "report.html"))


def shoot_results(page_file: Path) -> None:
    """Take question, answer, results and first figure of a page, wide and as on a telephone."""
    for scheme, (suffix, width) in itertools.product(SCHEMES, WIDTHS.items()):
        with tab(scheme, width, 900) as page:
            page.goto(page_file.absolute().as_uri())
            page.wait_for_selector("html[data-ready]", timeout=60_000)
            # images of data sets are not ours to show; explanations take more room than a picture has
            page.evaluate(
                "(hidden) => document.querySelectorAll(hidden).forEach((one) => one.remove())", HIDDEN
            )
            page.evaluate("document.body.style.paddingTop = '24px'")
            top = page.locator(".lead").bounding_box()
            bottom = page.locator("figure").first.bounding_box()
            taken = page.screenshot(
                full_page=True,
                clip={
                    "x": 0,
                    "y": top["y"] - 16,
                    "width": width,
                    "height": bottom["y"] + bottom["height"] - top["y"] + 32,
                },
            )
        keep(taken, f"report{suffix}-{scheme}.png", 64)


def keep(taken: bytes, name: str, colours: int) -> None:
    """Keep a picture with few colours, which a palette holds in a third of the bytes."""
    with Image.open(BytesIO(taken)) as picture:
        small = picture.convert("RGB").quantize(colours, dither=Image.Dither.NONE)
        small.save(PICTURES / name, optimize=True)


def main() -> None:
    """Take what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("teach", "report"))
    parser.add_argument("photos", type=Path, metavar="PHOTOS", nargs="?")
    parser.add_argument("--weights", type=Path)
    asked = parser.parse_args()
    if asked.what == "teach":
        if asked.photos is None:
            parser.error("teach needs PHOTOS")
        shoot_teach(asked.photos, asked.weights)
    else:
        shoot_report()


if __name__ == "__main__":
    main()
