"""What a package of a plugin may be called, and where it is written."""

from __future__ import annotations

import importlib
import shutil

import pytest

from lw2g.api.scaffold.package import Scaffold, check_name, write_package
from lw2g.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("MyMethod", "plugin name 'MyMethod' is not kebab-case; .* such as 'my-method'"),
        ("my_method", "such as 'my-method'"),
        ("2nd", "such as 'my-method'"),
        ("a--b", "such as 'a-b'"),
        ("", "such as 'my-method'"),
        ("../up", "such as 'up'"),
        (
            "dual-prompt",
            r"'dual-prompt' is taken by a baseline of plugin 'prompts' \(lw2g .*\); choose another",
        ),
        ("growth", "'growth' is taken: a plugin is called 'growth'"),
        ("class", "'class' is taken: Python knows 'class' already"),
        ("random", "'random' is taken: Python knows 'random' already"),
        ("lw2g-growth", "'lw2g-growth' is taken: Python knows 'lw2g_growth' already"),
    ],
)
def test_a_name_that_cannot_be_is_refused_with_a_remedy(catalogue, name, message):
    """Bad form, installed components and plugins, keywords and modules; all in one line."""
    with pytest.raises(ConfigError, match=message) as caught:
        check_name(name, catalogue, ["growth"])
    assert "\n" not in str(caught.value)


def test_the_installed_plugins_are_looked_for(catalogue):
    """Without a list, the entry points of this environment count."""
    with pytest.raises(ConfigError, match="a plugin is called 'single_set'"):
        check_name("single-set", catalogue)
    check_name("entirely-new-1", catalogue)


def test_a_name_is_free_again_once_the_package_s_files_are_gone(catalogue, tmp_path, monkeypatch):
    """An editable package whose folder was removed leaves an entry, which the next installation replaces."""
    site = tmp_path / "site"
    entry = "[lw2g]\nnear_mean = near_mean.plugin\n"
    for distribution in ("near-mean", "another"):
        info = site / f"{distribution.replace('-', '_')}-0.1.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 0.1\n")
        (info / "entry_points.txt").write_text(entry)
    package = site / "near_mean"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(site)
    with pytest.raises(ConfigError, match="a plugin is called 'near_mean'"):
        check_name("near-mean", catalogue)
    shutil.rmtree(package)
    importlib.invalidate_caches()
    # the entry of another distribution would stay beside the new one
    with pytest.raises(ConfigError, match="a plugin is called 'near_mean'"):
        check_name("near-mean", catalogue)
    shutil.rmtree(site / "another-0.1.dist-info")
    importlib.invalidate_caches()
    check_name("near-mean", catalogue)


def test_a_folder_in_use_is_refused_and_left_alone(tmp_path):
    """Neither a file nor a folder with something in it is written over; an empty folder is fine."""
    scaffold = Scaffold(name="new-one", kind="policy")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ConfigError, match="is a file; choose another out"):
        write_package(scaffold, tmp_path / "file")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    with pytest.raises(ConfigError, match="is not empty; choose another out"):
        write_package(scaffold, tmp_path / "full")
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["mine"]
    with pytest.raises(ConfigError, match="cannot be written"):
        write_package(scaffold, tmp_path / "file" / "below")
    (tmp_path / "empty").mkdir()
    assert (tmp_path / "empty" / "pyproject.toml") in write_package(scaffold, tmp_path / "empty")
