"""The program of docs/howto/service.md, as it stands there, answers on loopback."""

from __future__ import annotations

import runpy
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import lw2g
from written_images import grey_classes

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "service.py"

if not BENCHMARK.exists():
    pytest.skip("needs the source tree", allow_module_level=True)
for name in ("fastapi", "uvicorn", "httpx", "python_multipart"):
    pytest.importorskip(name, reason="needs the extra `service`")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of two classes, and their images beside it."""
    root = tmp_path_factory.mktemp("service")
    lw2g.start(grey_classes(root / "images"), root / "model", device="cpu")
    return root


def test_the_recipe_answers_as_the_model(folder: Path) -> None:
    """From four clients at once, by name; what cannot be used stands beside the others, alone it is a 422."""
    import httpx

    served = runpy.run_path(str(BENCHMARK))["served"]
    photos = sorted(path.read_bytes() for path in (folder / "images").rglob("*.png"))
    model = lw2g.load(folder / "model", device="cpu")
    expected = [model.predict(photo, top_k=2) for photo in photos]
    with served(folder / "model", CUDA_VISIBLE_DEVICES="") as (address, _):

        def ask(*images: bytes) -> Any:
            files = [("images", ("photo.png", image)) for image in images]
            return httpx.post(f"{address}/predict", params={"top_k": 2}, files=files, timeout=60)

        assert httpx.get(f"{address}/model").json()["classes"] == ["dark", "light"]
        with ThreadPoolExecutor(4) as threads:
            found = list(threads.map(lambda photo: ask(photo).json(), photos))
        # of bytes the model knows no name
        named = [[entry | {"name": "photo.png"} for entry in entries] for entries in expected]
        assert found == named
        assert [entry["class"] for entry in ask(*photos).json()] == [one[0]["class"] for one in expected]
        good, bad = ask(photos[0], b"no image").json()
        assert good["class"] == expected[0][0]["class"]
        assert bad["error"].startswith("'photo.png': it is no image of the formats")
        refused = ask(b"no image")
        assert (refused.status_code, refused.json()["detail"]) == (422, bad["error"])
        assert ask(*photos[:1] * 65).status_code == 413
        files = [("images", ("photo.png", photos[0]))]
        none = httpx.post(f"{address}/predict", params={"top_k": 0}, files=files, timeout=60)
        assert none.status_code == 422
