"""Packs of honest runs hold, and say nothing of the machine."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from lw2g.registry.catalogue import Catalogue
from lw2g.results.recomputed import read_columns
from lw2g.results.verification import verify as verify_run
from lw2g_store.packs import joined, split, verify
from lw2g_store.submit import public
from store_packs import failed


def test_a_pack_holds_and_says_of_metrics_what_its_run_says(
    honest: tuple[Path, Path, Path], known: Catalogue
) -> None:
    """Verification of a pack equals that of its run, and nothing in it is of the machine."""
    run, store, folder = honest
    of_run, of_pack = (
        [verdict for verdict in verdicts if verdict.what.startswith("record.json:")]
        for verdicts in (verify_run(run, known), verify(folder, known))
    )
    assert of_pack == of_run
    assert len(of_run) > 10
    assert not failed(store, known)
    told = b"".join(path.read_bytes() for path in folder.iterdir())
    for word in ("/home", "/Users", "C:\\", socket.gethostname(), os.uname().release, str(run)):
        assert word.encode() not in told


def test_columns_come_back_as_they_were(finished: tuple[Path, dict[str, Any]]) -> None:
    """Predictions with retrieval, a prefix of each other, are packed without loss in int16."""
    files = sorted((finished[0] / "predictions").iterdir())
    before = [read_columns(path) for path in files]
    columns = joined(before)
    assert {column.dtype.itemsize for column in columns.values()} == {2}
    for one, other in zip(before, split(columns, len(before)), strict=True):
        assert one.keys() == other.keys()
        assert all(np.array_equal(one[name], other[name]) for name in one)


def test_packs_are_checked_without_torch(honest: tuple[Path, Path, Path]) -> None:
    """`verify` of a pack and `store check` run where neither torch nor timm can be imported."""
    code = (
        "import sys\n"
        "for name in ('torch', 'torchvision', 'timm'): sys.modules[name] = None\n"
        "from lw2g.cli.main import main\n"
        "main(sys.argv[1:], prog_name='lw2g')\n"
    )
    for words in (["verify", str(honest[2])], ["store", "check", str(honest[1])]):
        done = subprocess.run(
            [sys.executable, "-c", code, *words], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "everything holds" in done.stdout


def test_what_is_of_the_machine_stays_out(known: Catalogue) -> None:
    """Roots, weights, paths in texts, the kernel, trackers and class names are not in a public record."""
    config = {
        "benchmark": {"name": "folder", "root": "/home/me/data", "more_roots": ["/x/y"], "title": "mine"},
        "backbone": {"name": "vit", "weights": "/data/me/vit.npz"},
        "trackers": {"wandb": {"entity": "me"}},
    }
    record = {
        "config": config,
        "sources": [
            {"benchmark": config["benchmark"]},
            {"benchmark": {"name": "features", "file": "secret.npz", "title": None, "increment": 5}},
        ],
        "environment": {"platform": "Linux-6.1-secret-x86_64"},
        "class_names": ["apple", "bear"],
        "metrics": {},
        "findings": {"note": "read from /mnt/disk/file.txt (twice)", "ratio": "1/2 and a/b"},
        "files": {"samples.json": "0", "predictions/task-000.safetensors": "1"},
    }
    told = public(record, {}, known)
    assert told["config"]["benchmark"] == {
        "name": "folder",
        "root": "folder",
        "more_roots": [],
        "title": "none",
    }
    assert told["sources"][1]["benchmark"] == {
        "name": "features",
        "file": "features",
        "title": None,
        "increment": 5,
    }
    assert told["config"]["backbone"]["weights"] == "vit"
    assert told["findings"] == {"note": "read from PATH (twice)", "ratio": "1/2 and a/b"}
    assert told["files"] == {"samples.json": "0"}
    text = json.dumps(told)
    assert not [word for word in ("me/", "wandb", "secret", "apple", "/x") if word in text]
