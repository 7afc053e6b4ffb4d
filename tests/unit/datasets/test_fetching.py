"""``lw2g run`` fetches the published data set that it lacks, from a host on this machine, if it may."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from click.testing import CliRunner, Result
from PIL import Image, ImageDraw

from lw2g.cli import fetching
from lw2g.cli.main import main
from lw2g.interfaces.dataset import ROOT_VARIABLE
from lw2g_benchmarks.data_set_facts import DATA_SETS
from lw2g_datasets import obtain
from lw2g_datasets.download import download

Run = Callable[..., Result]
NAME = "imagenette2-160.tgz"
QUESTION = "Imagenette (160 pixels) is missing: fetch it (99 MB) into"


def archive() -> bytes:
    """Return an archive as the published one: ten classes by number, in train/ and val/."""
    out = io.BytesIO()
    numbers = [number for number in DATA_SETS["imagenette"].renamed if number != "val"]
    with tarfile.open(fileobj=out, mode="w:gz") as file:
        for place, number in enumerate(numbers):
            for split, count in (("train", 3), ("val", 1)):
                for image in range(count):
                    drawn = Image.new("RGB", (32, 32), (25 * place, 40 * image, len(split) * 9))
                    ImageDraw.Draw(drawn).line((place * 3, 0, 31 - place, 31), fill="white", width=1 + image)
                    content = io.BytesIO()
                    drawn.save(content, "JPEG")
                    info = tarfile.TarInfo(f"imagenette2-160/{split}/{number}/{split}_{image}.JPEG")
                    info.size = len(content.getvalue())
                    file.addfile(info, io.BytesIO(content.getvalue()))
    return out.getvalue()


@pytest.fixture
def run(host: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs on Imagenette, whose archive the host on this machine has."""
    content = archive()
    host.files[f"/{NAME}"] = content
    checksum = f"md5:{hashlib.md5(content).hexdigest()}"

    def from_host(file: Any, folder: Path, report: Any) -> Path:
        here = attrs.evolve(file, url=f"{host.address}/{file.name}", checksum=checksum)
        return download(here, folder, report)

    monkeypatch.setattr(obtain, "download", from_host)
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path / "data"))

    def call(*words: str, typed: str | None = None) -> Result:
        # somebody who types sits at a terminal
        monkeypatch.setattr(fetching, "_can_ask", lambda: typed is not None)
        options = ["--baseline", "simple-cil", "--backbone", "micro", "--device", "cpu"]
        place = ["--benchmark", "imagenette", "--out", str(tmp_path / "run")]
        return CliRunner().invoke(main, ["run", *place, *options, *words], input=typed)

    return call


def test_agreed_a_run_fetches_its_data_and_goes_on(host: Any, run: Run, tmp_path: Path) -> None:
    """With ``--yes`` a broken connection is continued, the checksum is looked at, and the run ends."""
    host.cut = [1000]
    done = run("--yes")
    assert done.exit_code == 0, done.output
    assert [wanted for _, _, wanted in host.asked] == [None, "bytes=1000-"]
    assert "photographs are ImageNet's: for research and teaching" in done.stderr
    assert QUESTION not in done.stderr
    assert len(list((tmp_path / "data" / "imagenette" / "test").iterdir())) == 10
    assert (tmp_path / "run" / "record.json").is_file()
    host.asked.clear()
    again = run("--yes", "--out", str(tmp_path / "second"))
    assert again.exit_code == 0, again.output
    assert host.asked == []


def test_a_terminal_is_asked_once(host: Any, run: Run, tmp_path: Path) -> None:
    """The terms stand above the question; no is an error in a line that leaves nothing, yes goes on."""
    refused = run(typed="n\n")
    assert refused.exit_code == 2
    assert refused.stderr.count(QUESTION) == 1
    assert refused.stderr.index("Apache-2.0") < refused.stderr.index(QUESTION)
    assert "--yes fetches it (99 MB), as `lw2g data get imagenette` does" in refused.stderr
    assert host.asked == []
    assert not (tmp_path / "data").exists()
    assert not (tmp_path / "run").exists()
    done = run(typed="y\n")
    assert done.exit_code == 0, done.output


def test_without_a_terminal_it_is_one_line(host: Any, run: Run, tmp_path: Path) -> None:
    """A script is not asked: exit code 2 and the way out; a dry run only lists what is missing."""
    done = run()
    assert done.exit_code == 2
    (error,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert error.startswith(
        f"error: Imagenette (160 pixels) is missing: no folder '{tmp_path}/data/imagenette';"
    )
    assert "--yes fetches it (99 MB)" in error
    dry = run("--yes", "--dry-run")
    assert "missing: Imagenette" in dry.stdout
    assert host.asked == []


def test_what_only_a_browser_fetches_is_not_asked_for(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A data set whose terms or host ask for a person keeps its own line, and --yes changes nothing."""
    done = run("--yes", "--benchmark", "omnibenchmark")
    assert done.exit_code == 2
    assert "run `lw2g data get omnibenchmark`" in done.stderr
    assert "--yes" not in done.stderr


def test_another_file_than_the_published_one_is_refused(host: Any, run: Run, tmp_path: Path) -> None:
    """What the host has instead is deleted, and the run has not begun."""
    host.files[f"/{NAME}"] = b"something else"
    done = run("--yes")
    assert done.exit_code == 2
    assert "is not the published file" in done.stderr
    assert not (tmp_path / "data" / "imagenette").exists()
    assert not (tmp_path / "run").exists()
