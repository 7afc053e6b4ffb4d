"""A hub on loopback, and models of images whose names tell about people."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import as_file, files
from pathlib import Path

import pytest
from huggingface_hub import constants, file_download, hf_api

import lw2g
from hub_stub import TELLING, TOKEN, HubStub, write_images


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of cat and dog, that has learned bird and forgotten a person, on weights from a file."""
    root = tmp_path_factory.mktemp(TELLING)
    weights = root / f"{TELLING}.safetensors"
    with as_file(files("lw2g_backbones") / "micro.safetensors") as shipped:
        weights.write_bytes(shipped.read_bytes())
    for name, shade in (("cat", 0), ("dog", 100)):
        write_images(root / "first" / name, shade)
    for name, shade in (("bird", 200), ("Bertha Mayer", 150)):
        write_images(root / "more" / name, shade)
    given = {"weights": weights, "device": "cpu"}
    lw2g.start(root / "first", root / "m1", backbone="micro", **given)
    lw2g.learn(root / "m1", root / "more", out=root / "m2", **given)
    lw2g.unlearn(root / "m2", "Bertha Mayer", out=root / "m3", **given)
    return root / "m3"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubStub]:
    """A hub that the client takes for the real one, with a token that may write for anna."""
    with HubStub() as stub:
        template = stub.address + "/{repo_id}/resolve/{revision}/{filename}"
        for module in (constants, file_download, hf_api):  # older releases keep copies
            monkeypatch.setattr(module, "ENDPOINT", stub.address, raising=False)
            monkeypatch.setattr(module, "HUGGINGFACE_CO_URL_TEMPLATE", template, raising=False)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True, raising=False)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_PROGRESS_BARS", True)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield stub
