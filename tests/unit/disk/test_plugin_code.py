"""Which code of strangers' plugins a run has had, and what is said where it is another one now."""

from __future__ import annotations

from pathlib import Path

import pytest

from lw2g.disk.origins import ComponentOrigin
from lw2g.disk.plugin_code import changed_code, code_among, code_now, code_with, is_of_several
from lw2g.disk.record import RunDirectory
from lw2g.disk.sealed import seal_json
from strangers import install, offering

MINE = {"plugin": "mine", "distribution": "code-dist", "version": "1.0"}
OURS = {"plugin": "heads", "distribution": "lw2g", "version": "0.0"}
POLICY = ComponentOrigin(kind="policy", name="cautious", **MINE)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The module of an installed distribution."""
    site = tmp_path / "site"
    monkeypatch.syspath_prepend(str(site))
    site.mkdir()
    return install(site, "code-dist", "mine", offering("[]"))


def edit(module: Path) -> None:
    """Change a file in a way that its size and the version do not tell."""
    module.write_text(module.read_text().replace("0.0", "0.5"))


def noted(directory: Path, components: list[dict[str, str]], **code: object) -> Path:
    """Write what a run notes of its plugins."""
    directory.mkdir()
    (directory / "plugins.json").write_bytes(seal_json({"components": components, **code}))
    return directory


@pytest.mark.parametrize(
    ("component", "code", "told"),
    [
        ({"kind": "policy", **MINE}, ["NOW"], []),
        ({"kind": "policy", **MINE}, ["1.0 0123abcd"], ["code-dist 1.0: other code then"]),
        ({"kind": "policy", **MINE}, ["1.0 0123abcd", "NOW"], ["code-dist 1.0: other code then"]),
        ({"kind": "metric", **MINE}, ["0.9 0123abcd"], ["code-dist: 0.9 then, 1.0 now"]),
        ({"kind": "policy", **MINE}, None, []),  # of an older lw2g: versions alone
        ({"kind": "policy", **MINE, "version": "0.9"}, None, ["code-dist: 0.9 then, 1.0 now"]),
        ({"kind": "tracker", **MINE}, ["1.0 0123abcd"], []),  # changes no number
        ({"kind": "head", **OURS}, None, []),
        ({"kind": "policy", **MINE, "distribution": "gone-dist"}, None, []),
    ],
)
def test_what_a_run_has_had_is_compared_with_what_is_installed(module, tmp_path, component, code, told):
    """By version, and by the hash of files where both have one."""
    now = code_now("code-dist")
    had = {} if code is None else {"code": {"code-dist": [one.replace("NOW", now) for one in code]}}
    run = noted(tmp_path / "run", [{"name": "cautious", **component}], **had)
    assert changed_code(run) == told


def test_a_hash_is_of_the_files_of_modules_that_offer_components(module, tmp_path, monkeypatch):
    """All those of a package, wherever it lies; of a module that is no file the version stands alone."""
    before = code_now("code-dist")
    edit(module)
    assert code_now("code-dist") != before
    package = tmp_path / "site" / "code_dist"
    package.mkdir()
    inner = package / "inner.py"
    for path in (package / "__init__.py", inner):
        path.write_text("SIZE = 0.0")
    module.unlink()
    (package / ".#inner.py").symlink_to("nowhere")  # of an editor
    (package / "notes.txt").write_text("no code")
    whole = code_now("code-dist")
    package.rename(tmp_path / "code_dist")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert code_now("code-dist") == whole
    edit(tmp_path / "code_dist" / "inner.py")
    assert code_now("code-dist") not in (whole, before)
    monkeypatch.setattr("lw2g.disk.plugin_code.find_spec", lambda name: None)
    assert (code_now("code-dist"), code_now("gone-dist")) == ("1.0", None)


@pytest.mark.parametrize(
    ("checkpoint", "counts"),
    [
        ("task-000.step-000000", False),  # the beginning
        ("task-000.step-000001", True),
        ("task-000", True),
    ],
)
def test_code_that_has_left_nothing_learned_does_not_count(module, tmp_path, checkpoint, counts):
    """A run that failed before its first checkpoint has the numbers of the code that it goes on with."""
    files = RunDirectory(tmp_path / "run")
    files.checkpoints.mkdir(parents=True)
    files.write_origins([POLICY])
    first = code_now("code-dist")
    (files.checkpoints / f"{checkpoint}.safetensors").touch()
    edit(module)
    told = "code-dist 1.0: other code then; the tasks of this run are learned by both"
    assert files.note_code([POLICY]) == [told] * counts
    had = tuple(sorted([first] * counts + [code_now("code-dist")]))
    assert code_among([files.path]) == {"code-dist": {had: 1}}


def test_a_run_that_goes_on_has_had_both(module, tmp_path):
    """What it began with stays noted, and the line comes again whenever it goes on."""
    files = RunDirectory(tmp_path / "run")
    files.checkpoints.mkdir(parents=True)
    (files.checkpoints / "task-000.safetensors").touch()
    files.write_origins([POLICY])
    first = code_now("code-dist")
    assert (files.note_code([POLICY]), code_with(files.path, [POLICY])) == ([], {"code-dist": [first]})
    edit(module)
    told = ["code-dist 1.0: other code then; the tasks of this run are learned by both"]
    assert [files.note_code([POLICY]) for _ in range(2)] == [told, told]
    both = [first, code_now("code-dist")]
    assert code_with(files.path, [POLICY]) == {"code-dist": both}
    old = noted(tmp_path / "old", [{"kind": "policy", "name": "cautious", **MINE}])
    assert code_among([files.path, old]) == {"code-dist": {tuple(sorted(both)): 1, ("1.0",): 1}}
    assert [is_of_several(of_runs) for of_runs in ([both], [["1.0"], both[:1]])] == [True, False]
