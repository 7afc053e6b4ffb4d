"""``lw2g push``: what goes to the hub, what stays here, what the card says, and every refusal in a line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import attrs
import pytest
import yaml
from click.testing import CliRunner, Result

import lw2g
from hub_stub import TELLING, HubStub, write_images
from lw2g.cli.main import main
from lw2g.errors import ConfigError, DataError
from lw2g.model.exported import read_export, read_manifest, write_export
from lw2g_hub.hub_client import commit, known_repository
from lw2g_hub.model_card import renewed
from lw2g_hub.pushed_model import misplaced_path

REPO = "anna/pets"
# the hub's client uploads by a name that its own HTTP library gives up
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")


def command(*words: object) -> Result:
    return CliRunner().invoke(main, [*map(str, words)])


def sent(hub: HubStub) -> dict[str, bytes]:
    """Return the files of the repository as it stands."""
    repo = hub.repos[REPO]
    return repo.commits[repo.head]


def card(hub: HubStub) -> str:
    return sent(hub)["README.md"].decode()


@pytest.mark.parametrize("learnable", [False, True])
def test_nothing_personal_travels(model: Path, hub: HubStub, learnable: bool) -> None:
    """No path, no name of a file and no forgotten person stands in any file or request of an upload."""
    lw2g.push(model, REPO, learnable=learnable)
    telling = [TELLING, "Bertha", "Mayer", "at-home", str(model.parent), str(Path.home())]
    everything = {**sent(hub), **hub.blobs, "paths": repr(hub.requests).encode()}
    everything |= {f"body {number}": body for number, body in enumerate(hub.bodies)}
    assert {"README.md", "model.json", "model.safetensors", "learned.safetensors"} <= everything.keys()
    for name, content in everything.items():
        for word in telling:
            assert word.encode() not in content, f"{word} in {name}"
    # the model that was pushed has all of them but the names of images, or the test could not fail
    assert all(word in (model / "model.json").read_text() for word in (TELLING, "Bertha Mayer"))


def test_a_push_is_private_and_one_commit(model: Path, hub: HubStub) -> None:
    """The report and the last line name it; the model on this machine stays as it is."""
    before = {path.name: path.read_bytes() for path in model.iterdir()}
    done = command("push", model, REPO)
    head = hub.repos[REPO].head
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[-1] == f"hf://{REPO}@{head} (private)"
    assert hub.repos[REPO].private
    assert len(hub.repos[REPO].commits) == 2  # the empty repository, and this
    assert {path.name: path.read_bytes() for path in model.iterdir()} == before
    assert "the file with SHA-256" in done.stderr  # its weights came as a file


def test_a_card_names_no_test_folder_of_the_owner(model: Path, hub: HubStub, tmp_path: Path) -> None:
    """What it was tested on leads, as in `lw2g show`, without the name of the folder."""
    tested_on = tmp_path / "of-anna"
    for name, shade in (("cat", 5), ("dog", 105)):
        write_images(tested_on / name, shade)
    lw2g.start(model.parent / "first", tmp_path / "tested", backbone="micro", device="cpu", test=tested_on)
    lw2g.push(tmp_path / "tested", REPO)
    assert "- Accuracy: 100.0 % of 16 images from a test folder of the owner" in card(hub)
    assert "of-anna" not in card(hub)


def test_a_model_of_few_images_says_that_it_holds_their_features(
    model: Path, hub: HubStub, tmp_path: Path
) -> None:
    """Before anything is sent: without --learnable, too, its head keeps rows in place of wide sums."""
    lw2g.start(
        model.parent / "first",
        tmp_path / "wide",
        backbone="micro",
        head="lda",
        settings={"backbone.layers": 6},
        device="cpu",
    )
    told = "note: model.safetensors holds the features of 16 images"
    assert told in command("push", tmp_path / "wide", REPO, "--dry-run").stderr
    assert told.partition(" of ")[0] not in command("push", model, REPO, "--dry-run").stderr
    assert hub.requests == []


def test_public_is_what_somebody_says(model: Path, hub: HubStub) -> None:
    """A public repository is made, and pushed to, with --public alone; a private one stays private."""
    assert lw2g.push(model, REPO, public=True)["private"] is False
    with pytest.raises(ConfigError, match="'anna/pets' is public; push to it with public"):
        lw2g.push(model, REPO)
    assert len(hub.repos[REPO].commits) == 2
    hub.made("anna/own", {}, private=True)
    assert lw2g.push(model, "anna/own", public=True)["private"] is True


def test_a_dry_run_sends_nothing(model: Path, hub: HubStub, monkeypatch: pytest.MonkeyPatch) -> None:
    """It needs no token, asks the hub nothing, and shows each file with its size and the card."""
    monkeypatch.delenv("HF_TOKEN")
    report = json.loads(command("push", model, REPO, "--dry-run", "--json").stdout)
    assert hub.requests == []
    assert report["address"] == f"hf://{REPO}"
    assert set(report["files"]) == {"README.md", "model.json", "model.safetensors", "learned.safetensors"}
    assert report["files"]["model.safetensors"] == (model / "model.safetensors").stat().st_size
    shown = command("push", model, REPO, "--dry-run").stdout
    assert report["card"] in shown
    assert shown.endswith("nothing was sent\n")


def test_the_card_says_what_the_record_says(model: Path, hub: HubStub) -> None:
    """Classes and their images, accuracy with its interval, calibration, refusal, backbone, history."""
    lw2g.push(model, REPO)
    text = card(hub)
    front = yaml.safe_load(text.split("---")[1])
    assert front["library_name"] == "lw2g"
    assert front["pipeline_tag"] == "image-classification"
    history = read_manifest(model).history
    (bird,) = [entry for entry in history.steps[-1].checks["left_out_classes"] if entry["class"] == "bird"]
    assert "| found of images, each left out in turn |" in text
    assert f"| bird | 8 | {bird['recall']:.0f} % of {bird['left_out']} |" in text
    shown = re.search("^accuracy: (.*)$", command("show", model).stdout, re.MULTILINE)
    assert shown is not None
    assert f"- Accuracy: {shown[1]}." in text
    temperature = float(read_export(model).tensors["calibration/temperature"])
    assert f"temperature {temperature:.4g}" in text
    assert "`--reject 0.05` refuses what is less like its classes than 5 % of 24 kept images" in text
    assert "- Licence of the weights: not known" in text  # the file may be anybody's
    assert f"`{read_manifest(model).fingerprint.sha256}`" in text
    (forgotten,) = history.forgotten.values()
    assert f"- {forgotten[:16].replace('T', ' ')} UTC: forgot 1 class" in text
    assert f"- {history.steps[0].time[:16].replace('T', ' ')} UTC: learned 16 images of cat, dog;" in text
    assert "Made of people's photographs? **Not said.**" in text


def test_what_the_owner_writes_stays(model: Path, hub: HubStub) -> None:
    """A second push renews the record's part of the card alone; a card without one stays as it is."""
    lw2g.push(model, REPO)
    written = card(hub).replace("**Not said.** The owner", "No. The owner")
    old = written.replace("| bird | 8 |", "| bird | 7 |")
    sent(hub)["README.md"] = old.encode()
    lw2g.push(model, REPO)
    assert card(hub) == written
    sent(hub)["README.md"] = b"# mine\n"
    lw2g.push(model, REPO)
    assert card(hub) == "# mine\n"
    assert renewed("# mine\n", written) is None


def test_features_of_an_earlier_push_go(model: Path, hub: HubStub, tmp_path: Path) -> None:
    """Where a model without a history follows one that could take classes back, its file is taken away."""
    lw2g.push(model, REPO, learnable=True)
    features = len(sent(hub)["learned.safetensors"])
    lw2g.push(model, REPO)
    assert len(sent(hub)["learned.safetensors"]) < features / 10
    plain = read_export(model)
    write_export(
        attrs.evolve(plain, manifest=attrs.evolve(plain.manifest, learning=None)), tmp_path / "plain"
    )
    lw2g.push(tmp_path / "plain", REPO)
    assert "learned.safetensors" not in sent(hub)


@pytest.mark.parametrize(
    ("refuse", "said"),
    [
        ({"POST /api/repos/create": 401}, "the hub does not take the token (401); log in"),
        (
            {"POST /api/repos/create": 403},
            "the token may not write to 'anna/pets' (403); use a token with that right",
        ),
        ({"POST /api/repos/create": 409}, "'anna/pets' is there already, and the token may not see it (409)"),
        ({"preupload": 403}, "the token may not write to 'anna/pets' (403); nothing was added to it"),
        ({"commit/main": 412}, "'anna/pets' has changed meanwhile (412); nothing was added to it"),
        ({"PUT /lfs": 0}, "the hub did not answer ("),
        ({"commit/main": 500}, "the hub answers 500 (as the test wants it); nothing was added to it"),
    ],
)
def test_a_refused_push_is_one_line(
    model: Path, hub: HubStub, refuse: dict[str, int], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit code is 2, the line says what to do, and no file of the model is in the repository."""
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda seconds: None)  # between its tries
    hub.refuse = refuse
    done = command("push", model, REPO)
    assert done.exit_code == 2
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert said in line
    assert line.count("; ") >= 1
    if REPO in hub.repos:
        assert set(sent(hub)) == {".gitattributes"}
        assert "nothing was added to it" in line


def test_a_push_without_a_token_asks_for_one(
    model: Path, hub: HubStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is read or sent; so does one for another owner, by the hub's word."""
    with pytest.raises(DataError, match=r"the token may not write to 'bert/pets' \(403\)"):
        lw2g.push(model, "bert/pets")
    hub.requests.clear()
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(ConfigError, match="there is no token for the hub; log in"):
        lw2g.push(model / "gone", REPO)
    assert hub.requests == []


@pytest.mark.parametrize("repo", ["pets", "anna/pets@v1", "anna/../pets", "anna/pets/more", "", "hf://pets"])
def test_what_names_no_repository_is_refused(model: Path, hub: HubStub, repo: str) -> None:
    """Before anything is sent."""
    with pytest.raises(ConfigError, match=r"OWNER/NAME|a push makes one"):
        lw2g.push(model, repo)
    assert hub.requests == []


def test_two_pushes_at_once_do_not_mix(model: Path, hub: HubStub) -> None:
    """The one whose card was made from an older state is refused, and adds nothing."""
    lw2g.push(model, REPO)
    before = known_repository(REPO)
    assert before is not None
    lw2g.push(model, REPO, learnable=True)
    head = hub.repos[REPO].head
    with pytest.raises(DataError, match=r"'anna/pets' has changed meanwhile \(412\); nothing was added"):
        commit(before, {"README.md": b"old"})
    assert hub.repos[REPO].head == head


@pytest.mark.parametrize(
    ("options", "path"),
    [({"model": "/home/x/vit"}, True), ({"model": "~/vit"}, True), ({"model": "C:\\vit"}, True)]
    + [({"model": name}, False) for name in ("vit_tiny_patch16_224.augreg_in21k", "openai/clip-vit", "a.b")],
)
def test_a_place_in_a_description_is_found(model: Path, options: dict[str, Any], path: bool) -> None:
    """Paths of any system are found; names of models are none."""
    manifest = read_manifest(model)
    clean = attrs.evolve(manifest.backbone, weights=None, options=options)
    found = misplaced_path(attrs.evolve(manifest, backbone=clean, weights_name="micro"))
    assert found == (("backbone.options.model", options["model"]) if path else None)


def test_a_model_whose_options_name_a_place_stays_here(model: Path, hub: HubStub, tmp_path: Path) -> None:
    """A push names the option, and sends nothing."""
    saved = read_export(model, whole=True)
    backbone = attrs.evolve(saved.manifest.backbone, options={"model": str(tmp_path)})
    named = tmp_path / "named"
    write_export(attrs.evolve(saved, manifest=attrs.evolve(saved.manifest, backbone=backbone)), named)
    with pytest.raises(ConfigError, match=r"backbone\.options\.model: .* is a place on this machine"):
        lw2g.push(named, REPO)
    assert hub.requests == []


def test_a_class_may_be_called_anything(model: Path, hub: HubStub, tmp_path: Path) -> None:
    """No name breaks the table or the marks of the record's part, or becomes markup."""
    name = "<!-- end of what the record says --> | `x` *y* [z](http://evil)"
    saved = read_export(model, whole=True)
    history = saved.manifest.history

    def called(names: list[str]) -> list[str]:
        return [name if one == "bird" else one for one in names]

    tasks = [attrs.evolve(task, class_names=called(task.class_names)) for task in saved.manifest.tasks]
    steps = [attrs.evolve(step, classes=called(step.classes)) for step in history.steps]
    history = attrs.evolve(history, names=called(history.names), steps=steps)
    manifest = attrs.evolve(saved.manifest, tasks=tasks, learning=history)
    write_export(attrs.evolve(saved, manifest=manifest), tmp_path / "odd")
    lw2g.push(tmp_path / "odd", REPO)
    text = card(hub)
    assert text.count("<!--") == 2
    assert r"| &lt;\!-- end of what the record says --&gt; \| \`x\` \*y\* \[z\]\(http://evil\) | 8 |" in text
