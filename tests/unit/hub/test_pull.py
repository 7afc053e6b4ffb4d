"""``hf://OWNER/NAME@REVISION``: what is pulled is what was pushed, pinned, and runs no code of a stranger."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from click.testing import CliRunner, Result

import lw2g
from hub_stub import HubStub, write_images
from lw2g.cli.main import main
from lw2g.errors import ConfigError, DataError, Lw2gError
from lw2g.model.exported import read_export, write_export
from lw2g_hub import hub_models

REPO = "anna/pets"
ADDRESS = f"hf://{REPO}"
CLASSES = ("cat", "dog", "(forgotten)", "bird")
"""Of the model: one of them has no name any more."""
# the hub's client uploads by a name that its own HTTP library gives up
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")


def command(*words: object) -> Result:
    return CliRunner().invoke(main, [*map(str, words)])


def pixels(shade: int) -> Any:
    return np.full((16, 16, 3), shade, np.uint8)


def forged(model: Path, folder: Path, **changes: Any) -> dict[str, bytes]:
    """Return the files of a model whose description was changed, sealed anew."""
    saved = read_export(model)
    changes.setdefault("backbone", attrs.evolve(saved.manifest.backbone, weights=None))
    manifest = attrs.evolve(saved.manifest, learning=None, **changes)
    write_export(attrs.evolve(saved, manifest=manifest), folder)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def weights(model: Path) -> Path:
    """The weights that the model was made on."""
    return model.parent / "anna-smith.safetensors"


def test_a_pushed_model_answers_as_before(
    model: Path, weights: Path, hub: HubStub, caplog: pytest.LogCaptureFixture
) -> None:
    """By its address, on another machine that has the backbone, with the same bits; its commit is told."""
    address = lw2g.push(model, REPO)["address"]
    images = [pixels(shade) for shade in (10, 120, 220)]
    here = lw2g.load(model, device="cpu").predict(images, reject=0.2)
    caplog.clear()
    there = lw2g.load(ADDRESS, device="cpu")  # the embedded backbone has the numbers of the file
    assert there.predict(images, reject=0.2) == here
    assert f"note: read {address}" in caplog.messages
    assert str(there).endswith(f"from {address}")
    hub.requests.clear()
    assert str(pickle.loads(pickle.dumps(there))) == str(there)  # from the copy on this machine
    assert hub.requests == []
    assert there.classes == CLASSES
    assert lw2g.load(Path(ADDRESS), device="cpu", weights=weights).predict(images, reject=0.2) == here


def test_commands_that_read_a_model_take_an_address(model: Path, hub: HubStub) -> None:
    """predict, test and show; those that write beside it ask for a copy."""
    lw2g.push(model, REPO)
    first = model.parent / "first"
    entries = json.loads(command("predict", ADDRESS, first / "cat", "--json").stdout)
    assert {entry["class"] for entry in entries} == {"cat"}
    assert json.loads(command("test", ADDRESS, first, "--json").stdout)["accuracy"] == 100
    assert "3 classes: cat, dog, bird\n" in command("show", ADDRESS).stdout
    line = f"error: '{ADDRESS}' is on the hub; copy it first: lw2g pull {ADDRESS} MODEL\n"
    for words in (("learn", ADDRESS, first), ("unlearn", ADDRESS, "cat"), ("teach", ADDRESS)):
        done = command(*words)
        assert (done.exit_code, done.stderr) == (2, line), words
    with pytest.raises(DataError, match="copy it first"):
        lw2g.load(ADDRESS, device="cpu").learn(first)


def test_a_copy_learns(model: Path, hub: HubStub, tmp_path: Path) -> None:
    """A pulled model learns a new class; one that was pushed with its features takes one back, too."""
    write_images(tmp_path / "new" / "fish", 80)
    for learnable in (False, True):
        lw2g.push(model, REPO, learnable=learnable)
        copy = lw2g.pull(ADDRESS, tmp_path / f"copy-{learnable}")
        learned, _ = lw2g.learn(copy, tmp_path / "new", device="cpu")
        assert learned.classes == (*CLASSES, "fish")
        assert learned.predict(pixels(120))[0]["class"] == "dog"
        if learnable:
            _, report = lw2g.unlearn(copy, "bird", device="cpu")
            assert report["classes"] == ["cat", "dog"]
        else:
            with pytest.raises(ConfigError, match="'bird' was learned before the export"):
                lw2g.unlearn(copy, "bird", device="cpu")


def test_a_commit_pins_a_model(model: Path, hub: HubStub, caplog: pytest.LogCaptureFixture) -> None:
    """A later push changes what the name gives, and not what the commit gives, of which a copy is enough."""
    first = lw2g.push(model, REPO)["address"]
    lw2g.push(model.parent / "m1", REPO)
    assert lw2g.load(first, device="cpu").classes == CLASSES
    assert lw2g.load(ADDRESS, device="cpu").classes == ("cat", "dog")
    hub.requests.clear()
    hub.refuse = {"": 0}  # no answer any more
    assert lw2g.load(first, device="cpu").classes == CLASSES
    assert hub.requests == []
    # a branch is what it was when the hub was last reached, which is said; a refusal is no silence
    caplog.clear()
    assert lw2g.load(ADDRESS, device="cpu").classes == ("cat", "dog")
    assert [text for text in caplog.messages if "it is the model that was read before" in text]
    hub.refuse = {"GET /api/models": 403}
    with pytest.raises(DataError, match=r"the token may not read 'anna/pets' \(403\)"):
        lw2g.load(ADDRESS)


@pytest.mark.parametrize(
    ("address", "refuse", "said"),
    [
        ("hf://anna/none", {}, "the hub has no model 'anna/none' that you may see; check the name"),
        ("hf://anna/pets@v9", {}, "'anna/pets' has no such revision on the hub; name a branch"),
        ("hf://anna/text", {}, "'anna/text' holds no model of lw2g (no model.json); lw2g push makes one"),
        ("hf://anna/pets", {"GET /api/models": 401}, "the hub does not take the token (401); log in"),
        ("hf://anna/pets", {"GET /api/models": 0}, "the hub did not answer ("),
        ("hf://anna/pets", {"GET .*/resolve/.*tensors": 404}, "the hub answers 404"),
        ("hf://anna", {}, "'hf://anna' is no address of a model on the hub; write hf://OWNER/NAME"),
    ],
)
def test_what_cannot_be_pulled_is_one_line(
    model: Path, hub: HubStub, address: str, refuse: dict[str, int], said: str, tmp_path: Path
) -> None:
    """The exit code is 2, and no folder is there."""
    lw2g.push(model, REPO)
    hub.made("anna/text", {"README.md": b"# text"})
    hub.refuse = refuse
    done = command("pull", address, tmp_path / "copy")
    assert done.exit_code == 2
    (line,) = done.stderr.splitlines()[-1:]
    assert line.startswith("error: ")
    assert said in line
    assert not (tmp_path / "copy").exists()


class _Bomb:
    """Writes a file where it is unpickled."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> Any:
        return Path.write_text, (self.place, "it ran")


def test_a_strangers_model_runs_no_code(model: Path, hub: HubStub, tmp_path: Path) -> None:
    """JSON and safetensors alone are fetched, no pickle, no program; a pickle by their names is refused."""
    bomb = pickle.dumps(_Bomb(tmp_path / "ran"))
    files = forged(model, tmp_path / "forged")
    others = {"pytorch_model.bin": bomb, "modeling_lw2g.py": b"raise SystemExit", "config.json": b"{}"}
    hub.made(REPO, {**files, **others})
    lw2g.load(ADDRESS, device="cpu").predict(pixels(10))
    fetched = {path.rpartition("/")[2] for path in hub.asked_for("GET") if "/resolve/" in path}
    assert fetched == {"model.json", "model.safetensors"}
    hub.made(REPO, {**files, "model.safetensors": bomb})
    with pytest.raises(DataError, match=r"does not match its checksum in model\.json"):
        lw2g.load(ADDRESS)
    hub.made(REPO, {**files, "model.json": bomb})
    with pytest.raises(DataError):
        lw2g.load(ADDRESS)
    assert not (tmp_path / "ran").exists()
    pickle.loads(bomb)
    assert (tmp_path / "ran").exists()  # it would have run


def test_a_strangers_model_opens_no_file_of_mine(model: Path, hub: HubStub, tmp_path: Path) -> None:
    """A description that names weights or a folder on this disk, or code for images, is refused unopened."""
    backbone = read_export(model).manifest.backbone
    mine = {"weights": str(tmp_path / "mine.pth")}, {"weights": None, "options": {"model": "~/.ssh/id"}}
    for number, changes in enumerate(mine):
        files = forged(model, tmp_path / str(number), backbone=attrs.evolve(backbone, **changes))
        hub.made(REPO, files)
        with pytest.raises(DataError, match=r"names a place on a disk .*; nothing was opened"):
            lw2g.load(ADDRESS)


def test_a_model_that_claims_too_much_is_not_fetched(
    model: Path, hub: HubStub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sizes are looked at first: a description of megabytes, tensors that do not fit into the memory."""
    files = forged(model, tmp_path / "forged")
    hub.made(REPO, files)
    monkeypatch.setattr(hub_models, "_LARGEST_MANIFEST", len(files["model.json"]) - 1)
    with pytest.raises(DataError, match=r"model\.json of 'anna/pets' has \d+ bytes, more than"):
        lw2g.load(ADDRESS)
    monkeypatch.setattr(hub_models, "_LARGEST_MANIFEST", len(files["model.json"]))
    monkeypatch.setattr(
        "lw2g.ground.free_memory.usable_memory", lambda: 2 * len(files["model.safetensors"]) - 1
    )
    with pytest.raises(Lw2gError, match="the model 'anna/pets' cannot fit"):
        lw2g.load(ADDRESS)
    assert not [path for path in hub.asked_for("GET") if "/resolve/" in path]
