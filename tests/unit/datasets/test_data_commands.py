"""``lw2g data``: what is known, fetched and examined, through the command line."""

from __future__ import annotations

import io
import json
import zipfile

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from lw2g.cli.main import main
from lw2g.interfaces.dataset import ROOT_VARIABLE
from lw2g_benchmarks.data_set_facts import DATA_SETS


@pytest.fixture
def run(monkeypatch):
    """Return a function that runs ``lw2g data`` without a root in the environment."""
    monkeypatch.delenv(ROOT_VARIABLE, raising=False)
    return lambda *arguments: CliRunner().invoke(main, ["data", *map(str, arguments)])


def picture(value):
    """Return the bytes of a tiny image."""
    out = io.BytesIO()
    Image.new("RGB", (2, 2), (value, 0, 0)).save(out, "PNG")
    return out.getvalue()


def archive(classes, *, broken=False):
    """Return a zip archive of ``train`` and ``test`` folders."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        for label in range(classes):
            for split, count in (("train", 2), ("test", 1)):
                for i in range(count):
                    content = b"no image" if broken and (label, split) == (1, "test") else picture(i)
                    file.writestr(f"any/{split}/c{label:03}/{i}.png", content)
    return out.getvalue()


def test_list_names_all_data_sets(run, monkeypatch):
    """The table and the JSON list have every data set; one alone is told with all that is known.

    In 80 columns no name is broken.
    """
    monkeypatch.setenv("COLUMNS", "80")
    listed = run("list")
    assert listed.exit_code == 0
    assert all(name in listed.stdout for name in DATA_SETS)
    found = json.loads(run("list", "--json").stdout)
    assert {one["name"]: one["num_classes"] for one in found} == {
        name: one.num_classes for name, one in DATA_SETS.items()
    }
    assert {one["variable"] for one in found} == {"LW2G_DATA"}
    told = run("list", "imagenet-r").stdout
    for part in ("30,000", "split coda: 24000 + 6000", "3df56fda69a6", "unconfirmed: terms", "hendrycks"):
        assert part in told
    assert "did you mean 'imagenet-r'" in run("list", "imagenet-f").stderr


def test_get_and_check_agree_on_a_folder(run, tmp_path, monkeypatch):
    """Without --root and LW2G_DATA it is ~/lw2g-data for both, and for runs."""
    monkeypatch.delenv("LW2G_DATA", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert f"{tmp_path / 'lw2g-data'} is the folder of all data sets" in run("list").stdout
    assert str(tmp_path / "lw2g-data") in run("check", "cub200").stderr
    archive = tmp_path / "empty"
    archive.mkdir()
    assert run("get", "cub200-lamda", "--from", archive).exit_code == 2
    assert (tmp_path / "lw2g-data").exists()


def test_get_tells_the_terms_first(run, tmp_path):
    """Terms that forbid handing on, and known flaws, are printed before anything is fetched."""
    told = run("get", "omnibenchmark", "--root", tmp_path)
    assert told.exit_code == 2
    # older releases of click print an empty line before an error
    terms, forbids, flaws, error = [line for line in told.stderr.splitlines() if line]
    assert "CC BY-NC-ND 4.0" in terms
    assert forbids == "note: its terms forbid redistribution"
    assert flaws.startswith("note: known flaws: a few classes hold duplicates")
    photographs = run("get", "imagenette", "--root", tmp_path, "--from", tmp_path / "none")
    assert "note: known flaws: backbones that were trained on ImageNet have seen these" in photographs.stderr
    assert "has no direct download; fetch the zip" in error
    assert "md5:f1c30808a707f9197c6c811ea52e5cbb" in error


def test_get_and_check_an_archive_fetched_by_hand(run, tmp_path, monkeypatch):
    """Less than what is published is unpacked from a folder alone; what was unpacked is examined."""
    (tmp_path / "vtab.zip").write_bytes(archive(50))
    got = run("get", "vtab", "--root", tmp_path / "data", "--from", tmp_path / "vtab.zip")
    assert got.exit_code == 2
    assert "which nobody has confirmed" in got.stderr
    assert "found 150 files" in got.stderr
    with zipfile.ZipFile(tmp_path / "vtab.zip") as file:
        file.extractall(tmp_path / "unpacked")
    got = run("get", "vtab", "--root", tmp_path / "data", "--from", tmp_path / "unpacked" / "any")
    assert got.exit_code == 0, got.output
    assert "`lw2g data check vtab` examines it" in got.stdout
    assert (tmp_path / "data" / "vtab" / "train" / "c007" / "1.png").read_bytes() == picture(1)
    examined = run("check", "vtab", tmp_path / "data")
    assert examined.exit_code == 2
    assert "expected 1796 train images but found 100; expected 8619 test" in examined.stderr
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path / "data"))
    assert "expected 1796 train images" in run("check", "vtab").stderr


def test_check_counts_classes_and_hashes_lists(run, tmp_path):
    """Any benchmark can be examined: images of each class, hash of the list of files, fingerprint."""
    with zipfile.ZipFile(io.BytesIO(archive(10))) as file:
        file.extractall(tmp_path)
    table = run("check", "folder", tmp_path / "any")
    assert table.exit_code == 0, table.output
    assert "2 / 2 / 2" in table.stdout
    found = json.loads(run("check", "folder", tmp_path / "any", "--json").stdout)
    assert found["classes"]["c003"] == {"train": 2, "test": 1}
    assert len(found["sha256"]["train"]) == 64
    assert found["fingerprint"] in table.stdout
    uneven = run("check", "folder", tmp_path / "any", "--set", "benchmark.increment=3")
    assert "benchmark.increment: 3 does not split" in uneven.stderr
    mended = [*("check", "folder", tmp_path / "any"), *("--set", "benchmark.increment=3")]
    assert run(*mended, "--set", "benchmark.uneven=true").exit_code == 0
    assert "run.seed: only options of the benchmark can be set" in run(*mended, "--set", "run.seed=1").stderr


def test_check_names_unreadable_images(run, tmp_path):
    """A file that is no image is named with its path."""
    with zipfile.ZipFile(io.BytesIO(archive(10, broken=True))) as file:
        file.extractall(tmp_path)
    found = run("check", "folder", tmp_path / "any")
    assert found.exit_code == 2
    assert "1 of 30 images cannot be used" in found.stderr  # of both splits
    assert "any/test/c001/0.png" in found.stderr


def test_check_finds_a_jpeg_damaged_in_its_middle(run, tmp_path):
    """It looks whole from outside, so that only decoding it tells."""
    with zipfile.ZipFile(io.BytesIO(archive(10))) as file:
        file.extractall(tmp_path)
    path = tmp_path / "any" / "train" / "c001" / "more.jpg"
    rng = np.random.default_rng(0)
    Image.fromarray(rng.integers(0, 256, (40, 40, 3), dtype=np.uint8)).save(path)
    assert run("check", "folder", tmp_path / "any").exit_code == 0
    content = path.read_bytes()
    half = len(content) // 2
    path.write_bytes(content[:half] + b"\xff\xc0" + content[half + 2 :])
    found = run("check", "folder", tmp_path / "any")
    assert found.exit_code == 2
    assert f"images cannot be used, first '{path}': it is damaged" in found.stderr


def test_check_of_an_unknown_split_or_name(run, tmp_path):
    """Both are told with what there is."""
    found = run("check", "imagenet-r", tmp_path, "--split", "hide")
    assert (found.exit_code, "--split: expected one of coda, folders" in found.stderr) == (2, True)
    assert "'imagenet-r'" in run("check", "imagenet-rr").stderr
