"""A stopped run whose images now lie elsewhere goes on with them there, and with no others."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from lw2g.cli.main import main
from lw2g.disk.sealed import unseal_json
from runs import untimed
from written_images import write_images


def lw2g(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(one) for one in arguments])


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder of four classes."""
    draw = np.random.default_rng(0)
    root = tmp_path / "old" / "photos"
    for number in range(4):
        for split, count in (("train", 3), ("test", 2)):
            images = (draw.integers(0, 40, (8, 8, 3)) + 50 * number for _ in range(count))
            write_images(root / split / f"class-{number}", images)
    return root


def stopped(photos: Path, out: Path, *more: object) -> list[object]:
    """Return the command of a run that stops after its first task, without its end."""
    options = [f"--set=benchmark.root={photos}", "--set=benchmark.increment=2", "--set=run.device=cpu"]
    return ["run", "--benchmark", "folder", "--baseline", "simple-cil", *options, "--out", out, *more]


@pytest.mark.parametrize("how", ["continue", "resume"])
def test_it_goes_on_with_the_same_images_at_another_place(how: str, photos: Path, tmp_path: Path) -> None:
    """Its record is that of a run whose images never moved; the place is noted, and is not said again."""
    assert lw2g(*stopped(photos, tmp_path / "quiet")).exit_code == 0
    run = tmp_path / "run"
    assert lw2g(*stopped(photos, run, "--tasks", 1)).exit_code == 0
    moved = tmp_path / "new" / "photos"
    shutil.move(photos.parent, moved.parent)

    lost = lw2g("continue", run)
    assert lost.exit_code == 2
    remedy = f"if the data have moved: lw2g resume {run} --set benchmark.root=PLACE"
    assert remedy in lost.stderr.splitlines()[-1]

    if how == "resume":
        (run / "goal.json").unlink()  # as after a kill of a run to its end
    done = lw2g(how, run, "--set", f"benchmark.root={moved}", *(["--tasks", 2] if how == "continue" else []))
    assert done.exit_code == 0, done.stderr
    now = unseal_json(run / "record.json")
    assert untimed(now) == untimed(unseal_json(tmp_path / "quiet" / "record.json"))
    (run / "checkpoints" / "task-001.safetensors").unlink()
    assert lw2g("resume", run).exit_code == 0  # it knows the place
    fork, model = tmp_path / "fork", tmp_path / "model"
    # so does whatever else reads the images again
    for words in (
        ("fork", run, "--at-task", 1, "--out", fork),
        ("resume", fork),
        ("export", run, model, "--learnable"),
    ):
        done = lw2g(*words)
        assert done.exit_code == 0, done.stderr


def test_other_images_and_other_options_are_refused(photos: Path, tmp_path: Path) -> None:
    """One line each, and nothing is noted in the run."""
    run = tmp_path / "run"
    assert lw2g(*stopped(photos, run, "--tasks", 1)).exit_code == 0
    other = Path(shutil.copytree(photos, tmp_path / "new" / "photos"))
    shutil.copy(other / "train/class-0/0.png", other / "test/class-1/0.png")
    before = sorted(path.name for path in run.iterdir())
    refusals = {
        f"benchmark.root={other}": "the benchmark has changed since the run began",
        f"benchmark.root={tmp_path / 'nowhere'}": "no folder",
        "benchmark.increment=1": "a run continues as it is configured; say where its data lie now",
        "run.device=cpu": "a run continues as it is configured",
    }
    for setting, words in refusals.items():
        for how in ("continue", "resume"):
            done = lw2g(how, run, "--set", setting)
            assert (done.exit_code, words in done.stderr.splitlines()[-1]) == (2, True), done.stderr
    assert sorted(path.name for path in run.iterdir()) == before
