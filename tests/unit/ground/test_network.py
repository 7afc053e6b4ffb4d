"""A hub that does not answer costs three seconds, not minutes."""

from __future__ import annotations

import socket
import time
import traceback
from collections.abc import Iterator
from unittest.mock import patch

import pytest
import timm
from huggingface_hub import constants
from huggingface_hub.utils import get_session

import lw2g
from lw2g.errors import DataError
from lw2g.ground.network import hub_fails, offline_by, without_network
from lw2g.vit.timm_models import create_model

NAME = "vit_tiny_patch16_224.augreg_in21k"


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A hub that takes the connection and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.getsockname()[1]}")
        monkeypatch.setenv("no_proxy", "*")
        yield


def test_a_silent_hub_is_given_up(silent: None) -> None:
    """Within the seconds that it has."""
    began = time.monotonic()
    assert hub_fails(0.3)
    assert time.monotonic() - began < 30  # of more than a minute, on a machine that may be busy


def test_nobody_is_asked_where_that_is_wanted() -> None:
    """HF_HUB_OFFLINE, and an estimate, which looks what is here."""
    with without_network(), patch("socket.getaddrinfo", side_effect=AssertionError):
        assert hub_fails() == "offline"


def test_a_client_made_without_network_is_given_up():
    """It keeps the proxy at which nothing listens, so that no later request would get through."""
    with without_network():
        inside = get_session()
    assert get_session() is not inside


def test_the_file_is_named(silent: None, monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    """Where nothing is cached, the error says which file to fetch and how to pass it."""
    monkeypatch.setattr("lw2g.ground.network.hub_fails", lambda: "no answer")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(DataError) as caught:
        create_model(NAME, from_hub=True, image_size=None, seed=0)
    assert f"/timm/{NAME}/resolve/main/model.safetensors" in str(caught.value)
    assert "weights=FILE" in str(caught.value)
    assert "no answer" in str(caught.value)
    shown = "".join(traceback.format_exception(caught.value))
    assert shown.count("Traceback") == 1, "the errors of the hub's client bury what is told"


def test_the_variable_that_keeps_lw2g_offline_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    """Whoever set it long ago learns that nobody asked the hub, and which variable to unset."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(DataError, match="hub: HF_HUB_OFFLINE=1 keeps lw2g offline; unset it, or download "):
        create_model(NAME, from_hub=True, image_size=None, seed=0)
    with pytest.raises(DataError, match="not asked: HF_HUB_OFFLINE=1 keeps lw2g offline; unset it, and run"):
        lw2g.load("hf://anna/pets")
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    assert offline_by() is None


def test_what_is_cached_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model is asked for all the same, in a context that looks into the cache alone."""
    seen: list[bool] = []

    def create(name, pretrained=False, **options):
        if pretrained:
            seen.append(constants.HF_HUB_OFFLINE)
        return made(name, pretrained=False, **options)

    made = timm.create_model
    monkeypatch.setattr("lw2g.ground.network.hub_fails", lambda: "no answer")
    monkeypatch.setattr(timm, "create_model", create)
    create_model(NAME, from_hub=True, image_size=32, seed=0)
    assert seen == [True]
