"""The programs of docs/howto/onnx.md: Python with onnxruntime, and the page in a real browser."""

from __future__ import annotations

import functools
import os
import re
import shutil
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
from PIL import ExifTags, Image

import lw2g
from browsers import chromium

ROOT = Path(__file__).resolve().parents[3]
HOWTO = ROOT / "docs" / "howto"
CLASSES = ("ant", "bee", "cat")

if not HOWTO.exists():
    pytest.skip("needs the source tree", allow_module_level=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`model`, its `model.onnx`, and three pictures: as large as the network's input, larger and smaller."""
    for name in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(name, reason=f"{name} is not installed (pip install 'lw2g[onnx]')")
    root = tmp_path_factory.mktemp("served")
    draws = np.random.default_rng(0)
    for shade, name in enumerate(CLASSES):
        (root / "images" / name).mkdir(parents=True)
        for number in range(8):
            drawn(draws, shade, 32, 32).save(root / "images" / name / f"{number}.png")
    lw2g.start(root / "images", root / "model", backbone="micro", device="cpu")
    lw2g.export_onnx(root / "model", root / "model.onnx")
    for shade, (width, height) in enumerate(((32, 32), (91, 64), (23, 20))):
        drawn(draws, shade, width, height).save(root / f"{CLASSES[shade]}.png")
    return root


def drawn(draws: np.random.Generator, shade: int, width: int, height: int) -> Image.Image:
    """Return a picture of noise over stripes, whose shade tells its class."""
    stripes = 40 * np.sin(np.arange(width) / (2 + shade))[None, :, None]
    pixels = draws.integers(0, 60, (height, width, 3)) + 60 * shade + stripes
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def expected(folder: Path, name: str) -> dict[str, float]:
    """Return onnxruntime's probabilities of a picture that lw2g has prepared."""
    import onnxruntime

    model = lw2g.load(folder / "model", device="cpu")
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    image = model.transform(folder / f"{name}.png")[None].numpy()
    (probabilities,) = session.run(None, {"image": image})
    return dict(zip(model.classes, np.asarray(probabilities)[0].tolist(), strict=True))


@pytest.mark.slow
def test_the_program_in_python_names_the_classes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow alone prepares an image as lw2g does, EXIF too, but for the rounding of single pixels."""
    (program,) = re.findall(r"```python\n(.*?)```", (HOWTO / "onnx.md").read_text(encoding="utf-8"), re.S)
    monkeypatch.chdir(folder)
    with Image.open(f"{CLASSES[1]}.png") as image:
        turned = image.getexif()
        turned[ExifTags.Base.Orientation] = 6
        image.save("turned.png", exif=turned)
    pictures = (*CLASSES, "turned")
    names: dict[str, Any] = {}
    exec(program, names)
    answers = names["classify"](*(f"{name}.png" for name in pictures))
    for name, (best, share) in zip(pictures, answers, strict=True):
        ours = expected(folder, name)
        assert best == max(ours, key=ours.__getitem__)
        assert share == pytest.approx(ours[best], abs=5e-3)


class _Handler(SimpleHTTPRequestHandler):
    """Serves modules of JavaScript and WebAssembly as such, and says nothing."""

    extensions_map = {  # noqa: RUF012 (as the base class has it)
        **SimpleHTTPRequestHandler.extensions_map,
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
    }

    def log_message(self, *args: Any) -> None:
        """Leave the requests out of the output."""


@pytest.fixture
def address(folder: Path) -> Iterator[str]:
    """The folder with the page and the package of npm, served on loopback."""
    places = [Path(place) for place in os.environ.get("NODE_PATH", "").split(os.pathsep) if place]
    for place in [*places, ROOT / "node_modules"]:
        if (place / "onnxruntime-web").is_dir():
            break
    else:
        pytest.skip("no onnxruntime-web in NODE_PATH or here (npm install --no-save onnxruntime-web)")
    shutil.copy(HOWTO / "onnx.html", folder)
    (folder / "node_modules").unlink(missing_ok=True)
    (folder / "node_modules").symlink_to(place.resolve())
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Handler, directory=str(folder))) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/onnx.html"
        server.shutdown()
        thread.join()


@pytest.fixture
def browser() -> Iterator[Any]:
    """Chromium without a window."""
    with chromium() as opened:
        yield opened


@pytest.mark.slow
def test_the_page_classifies_in_a_browser(folder: Path, address: str, browser: Any) -> None:
    """It reads names and preparation from the file; probabilities are lw2g's but for rounded pixels."""
    page = browser.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(address)
    page.wait_for_selector("#photo:enabled", timeout=60_000)
    for name, near in zip(CLASSES, (1e-4, 5e-3, 5e-3), strict=True):
        page.evaluate("document.getElementById('answer').replaceChildren()")
        page.set_input_files("#photo", folder / f"{name}.png")
        page.wait_for_selector("#answer li", timeout=60_000)
        lines = page.locator("#answer li").all_inner_texts()
        shown = {line.partition(": ")[0]: float(line.partition(": ")[2][:-2]) / 100 for line in lines}
        ours = expected(folder, name)
        assert shown == pytest.approx(ours, abs=near)
        assert next(iter(shown)) == max(ours, key=ours.__getitem__)
    assert errors == []
