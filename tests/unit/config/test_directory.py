"""Runs get a directory of their own, and never somebody else's."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import attrs
import pytest

from lw2g.config.directory import missing_run, new_directory, require_outside
from lw2g.errors import ConfigError, DataError


@attrs.frozen(kw_only=True)
class Options:
    root: Path = Path("nowhere")
    more_roots: tuple[Path, ...] = ()
    increment: int = 1


CONFIG = SimpleNamespace(
    benchmark=SimpleNamespace(name="glyphs", config=Options()),
    baseline=SimpleNamespace(name="hide-prompt"),
    policy=SimpleNamespace(name="min"),
)


def _write_and_fail(directory):
    (directory / "events.jsonl").touch()
    raise DataError("no data")


def test_default_directories_are_numbered(tmp_path, monkeypatch):
    """A second run of the same names gets the next number, whatever is there already."""
    monkeypatch.chdir(tmp_path)
    for number in (1, 2):
        with new_directory(CONFIG, None) as directory:
            assert directory.as_posix() == f"runs/glyphs-hide-prompt-min-{number}"
            assert directory.is_dir()
    with new_directory(CONFIG, None, grows=False) as directory:
        assert directory.as_posix() == "runs/glyphs-hide-prompt-1", "a policy decides nothing"


def test_a_run_that_is_refused_leaves_no_directory(tmp_path, monkeypatch):
    """An empty directory is taken away again after a user's mistake; one with content stays."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError), new_directory(CONFIG, None):
        raise DataError("no data")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(DataError), new_directory(CONFIG, tmp_path / "kept"):
        _write_and_fail(tmp_path / "kept")
    assert (tmp_path / "kept" / "events.jsonl").exists()


def test_out_is_the_directory_itself(tmp_path):
    """Missing parents are made; an empty directory may be used."""
    for _ in range(2):
        with new_directory(CONFIG, tmp_path / "a" / "b") as directory:
            assert directory == tmp_path / "a" / "b"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("config.toml", r"holds a run already; resume it with `lw2g\.resume\("),
        ("sweep.json", "holds the runs of a sweep already; go on with `lw2g sweep retry"),
        ("thesis.tex", "is not empty and holds no run"),
    ],
)
def test_a_directory_in_use_is_refused(tmp_path, name, message):
    """Nothing that is there is ever written into."""
    (tmp_path / name).touch()
    with pytest.raises(ConfigError, match=message), new_directory(CONFIG, tmp_path):
        pass


def test_a_folder_of_models_names_one_to_give(tmp_path):
    """The last one where they are numbered, as those that were taught on a page."""
    for name in ("9", "10"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.json").touch()
    assert str(missing_run(tmp_path)) == f"'{tmp_path}' holds 2 models; the latest: {tmp_path / '10'}"
    (tmp_path / "10").rename(tmp_path / "ten")
    assert str(missing_run(tmp_path)).endswith(f"; these are {tmp_path / '9'}, {tmp_path / 'ten'}")


def test_a_file_is_no_directory(tmp_path):
    """A path that is a file is refused."""
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="is no directory"), new_directory(CONFIG, tmp_path / "file"):
        pass


def test_no_output_lies_in_what_is_read(tmp_path):
    """Data and the run that is forked hold no other run: whoever reads them next would take it for theirs."""
    for name in ("data", "more", "run", "beside", "data-2"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "data")
    options = Options(root=tmp_path / "data", more_roots=(tmp_path / "more",))
    config = attrs.make_class("Config", ["benchmark", "baseline", "policy"])(
        SimpleNamespace(name="folder", config=options), CONFIG.baseline, CONFIG.policy
    )
    refused = r"lies in '.*', which is read; choose a folder outside of it|is there already, and is read"
    for out in ("data", "data/a/b", "more/x", "run/fork", "beside/../data/x", "link/x"):
        with (
            pytest.raises(ConfigError, match=refused),
            new_directory(config, tmp_path / out, inputs=(tmp_path / "run",)),
        ):
            pass
    for out in ("data-2/x", "beside/x"):
        with new_directory(config, tmp_path / out, inputs=(tmp_path / "run",)):
            pass
    require_outside(tmp_path / "new", None, tmp_path / "missing")
    assert list((tmp_path / "data").iterdir()) == []
