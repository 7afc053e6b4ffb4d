"""A store of results: packs of honest runs hold; each fraud fails the check that is there for it."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
import tomli_w
import yaml
from click.testing import CliRunner, Result
from safetensors.numpy import load_file, save

from lw2g.cli.main import main
from lw2g.config.resolve import resolve
from lw2g.errors import ConfigError, DataError
from lw2g.files.contents import record_hash
from lw2g.files.protocol import digest_of, facts_of, sha_of_labels
from lw2g.files.sealed import seal_json, unseal_json
from lw2g.lifecycle.runner import start
from lw2g.models.saved import export_run
from lw2g.registry.catalogue import Catalogue, load_catalogue
from lw2g.reports.runs import read_run
from lw2g.reports.table import tables_of
from lw2g.results.recomputed import Streamed, matrices, metrics, read_columns
from lw2g.results.verification import verify as verify_run
from lw2g.store.badges import Badge, add_badge, predicted_again
from lw2g.store.checks import check_store
from lw2g.store.layout import add_protocol, init
from lw2g.store.packs import examine, joined, method_of, opened, split, verify
from lw2g.store.submit import public, submit

TOLD = {"who": "somebody", "licence": "CC0-1.0", "tuned_on": "nothing", "runs": 1}
SMALL = {"classes_per_family": 2, "increment": 2, "train_per_class": 8, "test_per_class": 10}


@pytest.fixture(scope="module")
def known() -> Catalogue:
    return load_catalogue()


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory, known: Catalogue) -> tuple[Path, Path, Path]:
    """A run on glyphs, a store with its pack, and the pack's folder."""
    place = tmp_path_factory.mktemp("honest")
    options = {f"benchmark.{key}": value for key, value in SMALL.items()}
    options |= {"run.device": "cpu", "run.precision": "32-true", "run.evaluation_batch": 16, "run.seed": 3}
    options["baseline.features"] = 200
    resolved = resolve(known, overrides=options, baseline="ranpac", benchmark="glyphs")
    record = start(resolved, known, place / "run")
    init(place / "store")
    add_protocol(place / "store", record, [3, 4])
    return place / "run", place / "store", submit(place / "run", known, place / "store", TOLD).path


@pytest.fixture
def store(honest: tuple[Path, Path, Path], tmp_path: Path) -> Path:
    """A copy of the store."""
    return Path(shutil.copytree(honest[1], tmp_path / "store"))


@attrs.define
class Forged:
    """What somebody may change before sealing everything anew."""

    record: dict[str, Any]
    submission: dict[str, Any]
    columns: dict[str, Any]
    files: dict[str, bytes] = attrs.field(factory=dict)

    def hash_anew(self) -> None:
        self.record["protocol_hash"] = digest_of(facts_of(self.record))

    def follow(self) -> None:
        """Let matrices and metrics follow from the columns."""
        tasks = len(self.record["accuracy_matrix"])
        evaluations = split(self.columns, tasks)
        streamed, held = Streamed.of(self.record, tasks), self.record["task_to_set"]
        accuracy = matrices(evaluations, held, streamed)[0]
        rows = [[None if math.isnan(value) else value for value in row] for row in accuracy.tolist()]
        values = metrics(evaluations, held, streamed, sets=self.record["storage"]["prompt_vectors"] > 0)
        self.record["accuracy_matrix"] = rows
        self.record["metrics"] |= {
            name: None if value is None else float(value)
            for name, value in values.items()
            if name in self.record["metrics"]
        }


def forge(folder: Path, change: Callable[[Forged], Any]) -> Path:
    """Change a pack and put every checksum and the folder's name right; return the folder."""
    columns = {name: column.copy() for name, column in load_file(folder / "predictions.safetensors").items()}
    forged = Forged(unseal_json(folder / "record.json"), unseal_json(folder / "submission.json"), columns)
    change(forged)
    written = {key: value for key, value in forged.record["config"].items() if value is not None}
    written = {
        name: {key: "none" if value is None else value for key, value in table.items()}
        for name, table in written.items()
    }
    files = {"predictions.safetensors": save(forged.columns), "config.toml": tomli_w.dumps(written).encode()}
    files |= forged.files
    forged.record["files"] |= {
        name: sha256(content).hexdigest() for name, content in files.items() if name in forged.record["files"]
    }
    try:
        forged.record["record_hash"] = record_hash(forged.record)
        files.setdefault("record.json", seal_json(forged.record))
    except ValueError:  # NaN is no JSON, but somebody else's program may write it
        files["record.json"] = json.dumps(forged.record | {"sha256": "0" * 64}).encode()
    forged.submission["record"] = json.loads(files["record.json"])["sha256"]
    files["submission.json"] = seal_json(forged.submission)
    place = folder.with_name(forged.submission["record"][:12])
    shutil.rmtree(folder)
    place.mkdir()
    for name, content in files.items():
        (place / name).write_bytes(content)
    return place


def only(store: Path) -> Path:
    return next(iter(store.glob("runs/*/*/*/*")))


def failed(store: Path, known: Catalogue) -> list[str]:
    return [verdict.text for verdict in check_store(store, known) if verdict.holds is False]


# -- honest packs ----------------------------------------------------------------------------------------


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


def test_what_is_of_the_machine_stays_out() -> None:
    """Roots, weights, paths in texts, the kernel, trackers and class names are not in a public record."""
    config = {
        "benchmark": {"name": "cifar100", "root": "/home/me/data", "more_roots": ["/x/y"], "title": "mine"},
        "backbone": {"name": "vit", "weights": "/data/me/vit.npz"},
        "trackers": {"wandb": {"entity": "me"}},
    }
    record = {
        "config": config,
        "sources": [{"benchmark": config["benchmark"]}],
        "environment": {"platform": "Linux-6.1-secret-x86_64"},
        "class_names": ["apple", "bear"],
        "metrics": {},
        "findings": {"note": "read from /mnt/disk/file.txt (twice)", "ratio": "1/2 and a/b"},
        "files": {"samples.json": "0", "predictions/task-000.safetensors": "1"},
    }
    told = public(record, {})
    assert told["config"]["benchmark"] == {
        "name": "cifar100",
        "root": "cifar100",
        "more_roots": [],
        "title": "none",
    }
    assert told["config"]["backbone"]["weights"] == "vit"
    assert told["findings"] == {"note": "read from PATH (twice)", "ratio": "1/2 and a/b"}
    assert told["files"] == {"samples.json": "0"}
    text = json.dumps(told)
    assert not [word for word in ("me/", "wandb", "secret", "apple", "/x") if word in text]


# -- frauds ----------------------------------------------------------------------------------------------


def _set(*path: Any, to: Any, anew: bool = False) -> Callable[[Forged], None]:
    def change(forged: Forged) -> None:
        *tables, key = path
        table: Any = forged.record
        for name in tables:
            table = table[name]
        table[key] = to
        if anew:
            forged.hash_anew()

    return change


def _labels(change: Callable[[dict[str, Any]], None], *, own_hash: bool = False) -> Callable[[Forged], None]:
    def forged(pack: Forged) -> None:
        change(pack.columns)
        pack.follow()
        if own_hash:
            pack.record["protocol_facts"]["test_labels"] = sha_of_labels(
                pack.columns["true"], pack.columns["task"]
            )
            pack.hash_anew()

    return forged


def _drop(columns: dict[str, Any]) -> None:
    columns |= {name: column[:-1].copy() for name, column in columns.items()}


def _relabel(columns: dict[str, Any]) -> None:
    columns["true"][:] = columns["true"][::-1] * 0 + columns["task"] * 2


def _file(name: str, content: bytes) -> Callable[[Forged], None]:
    return lambda forged: forged.files.update({name: content})


def _told(**submission: Any) -> Callable[[Forged], None]:
    return lambda forged: forged.submission.update(submission)


_BOMB = b'{"a":' * 30_000
_LONG = (1 << 40).to_bytes(8, "little") + b"{}"
_OVERLAP = (
    b'{"true":{"dtype":"I16","shape":[9],"data_offsets":[0,18]},'
    b'"task":{"dtype":"I16","shape":[9],"data_offsets":[0,18]}}'
)
FRAUDS = {
    "edited metric": (_set("metrics", "faa", to=99.0), "record.json: metrics.faa: 99 written"),
    "edited matrix": (
        _set("accuracy_matrix", 0, 0, to=1.0),
        "record.json: accuracy_matrix: task 1 after task 1",
    ),
    "no metric": (lambda forged: forged.record["metrics"].pop("faa"), "record.json: metrics: faa is missing"),
    "impossible sets": (_set("task_to_set", to=[0, 0, 9**9, 0, 0]), "record.json: "),
    "dropped images": (_labels(_drop), "protocol: labels or tasks of the test samples"),
    "wrong labels": (_labels(_relabel), "protocol: labels or tasks of the test samples"),
    "easier labels": (_labels(_relabel, own_hash=True), "protocol: another test_labels than glyphs/"),
    "easier images": (_set("protocol_facts", "test_ids", to="0", anew=True), "protocol: another test_ids"),
    "stale hash": (_set("protocol_facts", "test_ids", to="0"), "protocol: protocol_hash is not that"),
    "other order": (_set("class_order", to=[*range(1, 10), 0], anew=True), "protocol: another class_order"),
    "other backbone": (_set("backbone", "sha256", to="0" * 64, anew=True), "protocol: another backbone"),
    "other data": (_set("fingerprints", "benchmark", to="0", anew=True), "protocol: another data"),
    "best of seeds": (_set("seed", to=77), "protocol: seed 77 is none of the protocol's: 3, 4"),
    "older record": (_set("protocol_hash", to=None), "run it anew: lw2g run RUN/config.toml"),
    "unfinished": (_set("tasks", to=6), "stream: the run has finished 5 of 6 tasks"),
    "another seed": (
        _set("seed", to=4),
        "agreement: 'record.json': seed is 4, and config.run.seed is 3",
    ),
    "false protocol": (
        _set("protocol_id", to="cifar100/official"),
        "agreement: 'record.json': protocol_id is 'cifar100/official', and its hash is that of glyphs/",
    ),
    "false version": (
        _set("protocol_id", to="glyphs/like-for-like@7"),
        "agreement: 'record.json': protocol_id",
    ),
    "two benchmarks": (
        lambda forged: forged.record["sources"][0]["benchmark"].update(name="cifar100"),
        "agreement: 'record.json': sources[0].benchmark is ",
    ),
    "two backbones": (
        _set("fingerprints", "backbone", to="0" * 64),
        "agreement: 'record.json': fingerprints.backbone is '000",
    ),
    "a fork": (
        _set("origin", to={"run": "x", "task": 0, "changed": []}),
        "agreement: the run is a fork of another one",
    ),
    "other components": (
        lambda forged: forged.submission["components"].update({"policy x": "y 1"}),
        "agreement: 'submission.json' and the configuration differ in components: 'policy x'",
    ),
    "class below zero": (
        lambda forged: forged.columns["predicted"].__setitem__(0, -7),
        "classes: 'predictions.safetensors': predicted has class -7",
    ),
    "class that is none": (
        lambda forged: forged.columns["predicted"].__setitem__(-1, 10),
        "classes: 'predictions.safetensors': predicted has class 10, which is none of 0 to 9",
    ),
    "class of no task": (
        lambda forged: forged.record["task_classes"][0].__setitem__(0, -7),
        "stream: 'record.json': task 1 has class -7",
    ),
    "label below zero": (
        _set("class_order", 0, to=-7, anew=True),
        "stream: 'record.json': class_order has label -7",
    ),
    "huge class": (_set("task_classes", 0, 0, to=2**40), f"stream: 'record.json': task 1 has class {2**40}"),
    "set below none": (
        lambda forged: forged.columns.update(set=np.full_like(forged.columns["predicted"], -5)),
        "classes: 'predictions.safetensors': set has -5",
    ),
    "named classes": (_set("class_names", 0, to="<script>"), "stream: 'record.json': class_names are not"),
    "long domains": (_set("domains", to=["a" * 10**5] * 5), "stream: 'record.json': domains are not 5 names"),
    "unknown columns": (
        lambda forged: forged.columns.update({f"c{at}": np.zeros(1, "<i2") for at in range(90)}),
        "header: 'predictions.safetensors' holds 'c0', which is no column of predictions (90 such names)",
    ),
    "900 unknown columns": (
        lambda forged: forged.columns.update({f"c{at}": np.zeros(1, "<i2") for at in range(900)}),
        "header: 'predictions.safetensors': the header has",
    ),
    "invented metric": (
        _set("metrics", "wisdom", to=99.9),
        "keys: 'record.json': 'metrics.wisdom' is nothing",
    ),
    "invented definition": (
        _set(
            "metric_definitions", "wisdom", to={"definition": "x", "unit": "", "digits": 2, "plugin": "x 1"}
        ),
        "keys: 'record.json': 'metric_definitions.wisdom' is nothing",
    ),
    "unknown key": (_set("wisdom", to=1), "keys: 'record.json': 'wisdom' is nothing that lw2g"),
    "unknown cost": (_set("storage", "wisdom", to=1), "keys: 'record.json': 'storage.wisdom' is nothing"),
    "unknown section": (_set("config", "wisdom", to={}), "keys: 'record.json': 'config.wisdom' is nothing"),
    "unknown file": (_set("files", "a.pkl", to="0"), "keys: 'record.json': files names 'a.pkl'"),
    "unknown field": (_told(wisdom="x"), "keys: 'submission.json': 'wisdom' is no field of a submission"),
    "markup in an option": (
        _set("config", "baseline", "penalty", to="<img src=x>"),
        "keys: 'record.json': '<img src=x>' holds markup",
    ),
    "markup in a key": (
        _set("config", "baseline", "<b>", to=1),
        "keys: 'record.json': '<b>' cannot be the name of an option",
    ),
    "long dotted keys": (
        _set("config", "baseline", "a" * 10**5, to={"b": 1}),
        "keys: 'record.json': 'aaa",
    ),
    "infinity": (_file("record.json", b'{"faa": 1e999, "sha256": "000000000000"}'), "1e999 is no number"),
    "told the task": (
        _set("config", "baseline", "name", to="joint"),
        "seal: 'submission.json' calls the method",
    ),
    "another name": (_told(method="my-method"), "seal: 'submission.json' calls the method 'my-method'"),
    "other options": (
        _file("config.toml", b"[run]\nseed = 9\n"),
        "seal: 'config.toml' and 'record.json' differ",
    ),
    "nobody": (_told(who=" "), "json: 'submission.json' must tell who"),
    "escapes": (_told(who="a\x1b[2Jb"), "json: 'submission.json': who has control characters"),
    "no licence": (_told(licence="mine"), "json: 'submission.json': "),
    "NaN": (_set("metrics", "faa", to=math.nan), "json: 'record.json' is no JSON: NaN is no number"),
    "nested record": (
        _set("findings", to={"a": json.loads("[" * 25 + "]" * 25)}),
        "json: 'record.json' is nested",
    ),
    "another type": (
        _set("accuracy_matrix", to=[["<b>"]]),
        "json: 'record.json': expected float but got '<b>' at",
    ),
    "a path": (_set("findings", to={"a": "/home/me/x"}), "machine: 'record.json' contains a local path"),
    "nested configuration": (_file("config.toml", b"a = " + b"[" * 9_999), "seal: "),
    "long header": (
        _file("predictions.safetensors", _LONG),
        "header: 'predictions.safetensors': the header has",
    ),
    "shared bytes": (
        _file("predictions.safetensors", len(_OVERLAP).to_bytes(8, "little") + _OVERLAP + b"0" * 18),
        "header: 'predictions.safetensors': the tensors do not follow",
    ),
    "floats": (
        _file("predictions.safetensors", save({"true": np.ones(3)})),
        "is no vector of int16 or int32",
    ),
    "huge file": (
        _file("predictions.safetensors", bytes(10_000_001)),
        "sizes: 'predictions.safetensors' has 10.0 MB",
    ),
    "pickle": (_file("head.pkl", b"\x80\x04."), "files: 'head.pkl' is none of"),
    "notebook": (_file("run.ipynb", b"{}"), "files: 'run.ipynb' is none of"),
}


@pytest.mark.parametrize("name", FRAUDS)
def test_a_forged_pack_fails_the_check_that_is_there_for_it(store: Path, known: Catalogue, name: str) -> None:
    """All checksums are right, and one line says which check the pack fails."""
    change, said = FRAUDS[name]
    forge(only(store), change)
    texts = failed(store, known)
    assert texts
    assert said in texts[0]
    assert all(len(text.splitlines()) == 1 for text in texts)


def test_links_programs_bombs_and_strays_are_refused(store: Path, known: Catalogue, tmp_path: Path) -> None:
    """What git can hold beside plain files is not opened; JSON is bounded before it is parsed."""
    folder = only(store)
    for break_it, said in (
        (lambda path: path.chmod(0o755), "may be executed"),
        (lambda path: path.write_bytes(_BOMB), "nested more than 20 levels"),
        (lambda path: (path.unlink(), path.symlink_to("/etc/passwd")), "is no plain file"),
        (lambda path: path.unlink(), "is missing"),
    ):
        copy = Path(shutil.copytree(folder, tmp_path / said.replace(" ", "-")))
        break_it(copy / "submission.json")
        assert said in " ".join(verdict.text for verdict in examine(copy, known)[0])
    folder.rename(folder.with_name("0" * 12))
    shutil.copytree(only(store), store / "runs" / "glyphs" / "a\x1b[2J")
    result = CliRunner().invoke(main, ["store", "check", str(store)])
    assert result.exit_code == 1
    assert "lies in '000000000000'" in result.output
    assert "no folder of a run" in result.output
    assert "\x1b" not in result.output


def test_an_oracle_is_refused_and_a_control_is_marked(store: Path, known: Catalogue) -> None:
    """Whoever is told the task of a test image is no learner; a bound is entered as what it is."""

    def named(kind: str, name: str) -> Callable[[Forged], None]:
        def told(forged: Forged) -> None:
            before = (forged.record["config"][kind] or {}).get("name")
            forged.record["config"][kind] = {"name": name}
            forged.submission["method"] = method_of(forged.record)
            origin = forged.submission["components"].pop(f"{kind} {before}", "lw2g 0.1.0")
            forged.submission["components"][f"{kind} {name}"] = origin

        return told

    marked = forge(only(store), named("baseline", "simple-cil"))
    assert not [verdict for verdict in verify(marked, known) if verdict.holds is False]
    forge(marked, named("retrieval", "oracle"))
    assert "oracle: retrieval 'oracle' is told the task" in failed(store, known)[0]


def _all_right(forged: Forged) -> None:
    counts = np.bincount(forged.columns["task"]).cumsum()
    forged.columns["predicted"] = np.concatenate([forged.columns["true"][:count] for count in counts])
    forged.follow()


def test_saturated_runs_of_two_submitters_are_no_copies(store: Path, known: Catalogue) -> None:
    """Equal predictions are no evidence: two methods that answer every image rightly both hold."""
    first = forge(only(store), _all_right)

    def another(forged: Forged) -> None:
        forged.submission["who"] = "another"
        forged.record["config"]["baseline"]["features"] = 300

    forge(Path(shutil.copytree(first, first.with_name("copy"))), another)
    verdicts = check_store(store, known)
    assert [verdict.holds for verdict in verdicts] == [True, True]
    assert all("FAA 100.00" in verdict.text for verdict in verdicts)


RUN = "runs/glyphs/like-for-like@1/m/0123456789ab"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([f"M\t{RUN}/record.json"], "is changed or removed"),
        ([f"D\t{RUN}/record.json"], "is changed or removed"),
        ([f"R100\t{RUN}/record.json\t{RUN}/config.toml"], "is changed or removed"),
        (["A\tbadges/0123456789ab.json"], "are the maintainers'"),
        (["A\tprotocols/glyphs/like-for-like@2.json"], "are the maintainers'"),
        (["A\t.github/workflows/check.yml"], "are the maintainers'"),
        ([f"A\t{RUN}/../../x/record.json"], "are the maintainers'"),
        ([f"A\t/{RUN}/record.json"], "are the maintainers'"),
        ([f"A\t{RUN}/index.html"], "are the maintainers'"),
        ([f'A\t"{RUN}/a\\nb"'], "are the maintainers'"),
        ([f"A\t{RUN}/record.json", f"A\t{RUN[:-1]}c/record.json"], "2 runs at once"),
        ([], "0 runs at once"),
    ],
)
def test_a_change_adds_one_run_and_nothing_else(
    honest: tuple[Path, Path, Path], known: Catalogue, lines: list[str], said: str
) -> None:
    """Nobody awards badges to oneself, edits protocols or tools, or reaches out of the folder."""
    (verdict,) = check_store(honest[1], known, lines)
    assert (verdict.what, verdict.holds) == ("paths", False)
    assert said in verdict.text


@pytest.mark.parametrize("depth", [0, 1, 3, 4], ids=["runs", "benchmark", "method", "run"])
def test_a_change_goes_through_no_link(store: Path, known: Catalogue, tmp_path: Path, depth: int) -> None:
    """A folder of the proposed run, or one above it, that is a link leads the check elsewhere."""
    parts = only(store).relative_to(store).parts
    linked = store.joinpath(*parts[: depth + 1])
    moved = tmp_path / "elsewhere"
    linked.rename(moved)
    linked.symlink_to(moved)
    lines = [f"A\t{'/'.join(parts)}/record.json"]
    (verdict,) = check_store(store, known, lines)
    assert (verdict.what, verdict.holds) == ("paths", False)
    assert verdict.text == f"{parts[depth]!r} is a link"


# -- the workflow of a store -------------------------------------------------------------------------------


def _git(place: Path, *words: str) -> str:
    names = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *names, *words], cwd=place, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_workflow_runs_nothing_of_a_proposal(tmp_path: Path) -> None:
    """It is the base's, its token reads, nothing of the proposer's is in a command, and all is pinned."""
    init(tmp_path / "store")
    text = (tmp_path / "store/.github/workflows/check.yml").read_text(encoding="utf-8")
    workflow = yaml.safe_load(text)
    assert workflow[True].keys() == {"pull_request_target", "push"}  # YAML reads `on` as true
    assert workflow["permissions"] == {"contents": "read"}
    (job,) = workflow["jobs"].values()
    for step in job["steps"]:
        assert "${{" not in step.get("run", "")
        assert re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", step.get("uses", f"actions/run@{'0' * 40}"))
    assert job["steps"][0]["with"]["persist-credentials"] is False
    values = [line.partition("#")[0] for line in text.splitlines()]
    assert not [line for line in values if "secrets" in line or "cache" in line]
    assert "--require-hashes" in text
    pins = (tmp_path / "store/tools/requirements.txt").read_text(encoding="utf-8").splitlines()
    pinned = re.compile(r"[a-z-]+==[\d.]+ --hash=sha256:[0-9a-f]{64}")
    assert all(pinned.fullmatch(line) for line in pins if not line.startswith("#"))


@pytest.mark.parametrize(
    ("also", "passes"),
    [
        (None, True),
        (".github/workflows/check.yml", False),
        ("tools/requirements.txt", False),
        ("runs/.gitattributes", False),
    ],
)
def test_the_commands_of_the_workflow_take_a_run_and_nothing_else(
    store: Path, tmp_path: Path, also: str | None, passes: bool
) -> None:
    """They are run on a proposal to a repository, as the service that hosts it would run them."""
    origin, pack = tmp_path / "origin", only(store)
    kept = pack.rename(tmp_path / pack.name)
    shutil.copytree(store, origin)
    _git(origin, "init", "-q", "-b", "main")
    _git(origin, "add", ".")
    _git(origin, "commit", "-qm", "store")
    shutil.copytree(kept, origin / pack.relative_to(store))
    if also is not None:
        (origin / also).write_text("* filter=lfs\n")
    _git(origin, "add", ".")
    _git(origin, "commit", "-qm", "a run")
    _git(origin, "update-ref", "refs/pull/7/head", "HEAD")
    _git(origin, "reset", "-q", "--hard", "HEAD~1")
    base = tmp_path / "base"
    _git(tmp_path, "clone", "-q", str(origin), str(base))
    steps = yaml.safe_load((base / ".github/workflows/check.yml").read_text())["jobs"]["check"]["steps"]
    (command,) = [step["run"] for step in steps if step.get("name") == "Check the proposal"]
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "lw2g").write_text(f'#!/bin/sh\nexec {sys.executable} -m lw2g "$@"\n')
    (tools / "lw2g").chmod(0o755)
    own = {"NUMBER": "7", "RUNNER_TEMP": str(tmp_path), "PATH": f"{tools}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-e", "-c", command],
        cwd=base,
        env=os.environ | own,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode == 0) is passes, done.stderr
    assert (
        "recomputed: FAA" if passes else "protocols, badges and tools are the maintainers'"
    ) in done.stdout or ("is changed or removed" in done.stdout)


# -- badges ----------------------------------------------------------------------------------------------


def test_invented_predictions_pass_as_recomputed_and_fail_to_be_predicted_again(
    honest: tuple[Path, Path, Path], store: Path, known: Catalogue, tmp_path: Path
) -> None:
    """What the checks of the store cannot see, the model shows; the honest pack passes, new images too."""
    export_run(honest[0], known, tmp_path / "model")
    honest_pack = examine(honest[2], known)[1]
    assert honest_pack is not None
    badges = predicted_again(honest_pack, tmp_path / "model", data=None, fresh=9, device="cpu")
    assert [badge.holds for badge in badges] == [True, True]

    folder = forge(only(store), _all_right)
    assert not failed(store, known)
    invented = examine(folder, known)[1]
    assert invented is not None
    assert invented.record["metrics"]["faa"] == 100
    badges = predicted_again(invented, tmp_path / "model", data=None, fresh=9, device="cpu")
    assert [(badge.badge, badge.holds) for badge in badges] == [("re-predicted", False)]


def test_a_model_that_knows_the_test_images_fails_on_fresh_ones(
    honest: tuple[Path, Path, Path], known: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Test labels built into a model are predicted again, but images drawn afterwards are not answered."""
    pack = examine(honest[2], known)[1]
    assert pack is not None
    benchmark = known.get("benchmark", "glyphs")
    stream = benchmark.build(benchmark.config(**SMALL)).stream()
    images = [task.test.source.image(int(index)) for task in stream.tasks for index in task.test.indices]
    answers = {
        image.numpy().tobytes(): int(own)
        for image, own in zip(images, pack.evaluations[-1]["predicted"], strict=True)
    }
    print_of = known.get("backbone", "micro").build(known.get("backbone", "micro").config(), None, None)

    class Memory:
        backbone = print_of

        def predict(self, image: Any) -> list[dict[str, Any]]:
            return [{"class_index": answers.get(image.numpy().tobytes(), 0)}]

    monkeypatch.setattr("lw2g.models.saved.open_model", lambda *_, **__: Memory())
    badges = predicted_again(pack, Path("model"), data=None, fresh=9, device="cpu")
    assert [badge.holds for badge in badges] == [True, False]


# -- submitting ------------------------------------------------------------------------------------------


def invoke(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tasks": 9}, "the run has finished 5 of 9 tasks; lw2g resume"),
        ({"origin": {"run": "x", "task": 0, "changed": []}}, "is a fork"),
        ({"protocol_hash": None}, "run it anew: lw2g run RUN/config.toml"),
        ({"oracle": True}, "retrieval 'oracle' is told the task"),
        ({"local": True}, "belongs to no installed distribution"),
    ],
)
def test_runs_that_no_store_takes_are_refused(
    honest: tuple[Path, Path, Path], known: Catalogue, tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    """Unfinished runs, forks, oracles, local components and old records: one line, and nothing is left."""
    run = Path(shutil.copytree(honest[0], tmp_path / "run"))
    record = unseal_json(run / "record.json")
    if "oracle" in change:
        record["config"]["retrieval"] = {"name": "oracle"}
    if "local" in change:
        record["config"]["baseline"]["name"] = "local-mine"
    (run / "record.json").write_bytes(seal_json(record | {k: v for k, v in change.items() if k in record}))
    with pytest.raises(DataError) as caught:
        submit(run, known, tmp_path / "out", TOLD)
    assert said in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_run_without_its_checkpoints_is_packed(
    honest: tuple[Path, Path, Path], known: Catalogue, tmp_path: Path
) -> None:
    """They are no part of a pack; `lw2g verify` still says that they are missing."""
    run = Path(shutil.copytree(honest[0], tmp_path / "run"))
    shutil.rmtree(run / "checkpoints")
    pack = submit(run, known, tmp_path / "out", TOLD)
    assert all(verdict.holds for verdict in verify(pack.path, known))
    missing = [verdict.what for verdict in verify_run(run, known) if verdict.holds is False]
    assert missing
    assert all(what.startswith("checkpoints/") for what in missing)


def test_a_protocol_is_named_after_the_data(
    honest: tuple[Path, Path, Path], known: Catalogue, tmp_path: Path
) -> None:
    """`store protocol --data` names what the benchmark does not; runs lie under that id and hold."""
    init(tmp_path / "store")
    made = invoke("store", "protocol", tmp_path / "store", honest[0], "--data", "photos.0.224")
    assert made.exit_code == 0
    assert made.output.strip().endswith("glyphs/like-for-like/photos.0.224@1.json")
    pack = submit(honest[0], known, tmp_path / "store", TOLD).path
    assert "like-for-like/photos.0.224@1/" in pack.as_posix()
    assert all(verdict.holds for verdict in check_store(tmp_path / "store", known))
    refused = invoke("store", "protocol", tmp_path / "store", honest[0], "--data", "Two Words")
    assert refused.exit_code == 2


def test_a_store_of_ones_own_takes_its_first_protocol_with_a_run(
    honest: tuple[Path, Path, Path], known: Catalogue, tmp_path: Path
) -> None:
    """`submit --new-protocol` adds it once; a run that is refused leaves none."""
    store = tmp_path / "store"
    init(store)
    words = (
        "submit",
        honest[0],
        "--licence",
        "CC0-1.0",
        "--tuned-on",
        "nothing",
        "--runs",
        1,
        "--out",
        store,
    )
    without = invoke(*words, "--who", "me")
    assert without.exit_code == 2
    assert "--new-protocol" in without.stderr
    first = invoke(*words, "--who", "me", "--new-protocol")
    assert first.exit_code == 0, first.output
    assert "the store's new protocol: " in first.output
    again = invoke(*words, "--who", "you", "--new-protocol")
    assert "new protocol" not in again.stdout
    assert all(verdict.holds for verdict in check_store(store, known))
    init(tmp_path / "other")
    (hurt := Path(shutil.copytree(honest[0], tmp_path / "hurt"))).joinpath("config.toml").write_text("")
    refused = invoke("submit", hurt, *words[2:-1], tmp_path / "other", "--who", "me", "--new-protocol")
    assert refused.exit_code == 2
    assert [path.name for path in (tmp_path / "other" / "protocols").iterdir()] == [".gitkeep"]
    # refused after its protocol was written
    edited = Path(shutil.copytree(honest[0], tmp_path / "edited"))
    predictions = next(edited.glob("predictions/*"))
    predictions.write_bytes(predictions.read_bytes()[:-1] + b"x")
    refused = invoke("submit", edited, *words[2:-1], tmp_path / "other", "--who", "me", "--new-protocol")
    assert refused.exit_code == 2
    assert [path.name for path in (tmp_path / "other" / "protocols").iterdir()] == [".gitkeep"]


def test_the_command_asks_for_what_is_missing_and_tells_what_it_packed(
    honest: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    """One line with all missing options; then the files, their sizes, and that nothing was uploaded."""
    run = honest[0]
    result = invoke("submit", run, "--who", "me", "--out", tmp_path / "out")
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert "--licence, --tuned-on, --runs are missing" in result.stderr
    words = ["submit", run, "--who", "me", "--licence", "CC0-1.0", "--tuned-on", "nothing", "--runs", 1]
    result = invoke(*words, "--out", tmp_path / "out")
    assert result.exit_code == 0
    assert "nothing was uploaded" in result.output
    assert len(list((tmp_path / "out").glob("*/*"))) == 4
    assert "is damaged" not in invoke("verify", next((tmp_path / "out").iterdir())).output
    init(tmp_path / "empty")
    result = invoke(*words, "--out", tmp_path / "empty")
    assert "a maintainer adds it: lw2g store protocol" in result.stderr
    flipped = Path(shutil.copytree(run, tmp_path / "flipped"))
    (flipped / "samples.json").write_text("[]")
    words[1] = flipped
    assert "samples.json: does not match its checksum" in invoke(*words, "--out", tmp_path / "o").stderr


def test_a_plugin_on_no_index_is_told_by_address_and_commit(
    honest: tuple[Path, Path, Path], store: Path, known: Catalogue, tmp_path: Path
) -> None:
    """The pack has it and the check shows it; anything else is refused in one line, here and in a store."""
    address = "https://example.org/me/method@" + "0a" * 20
    shutil.rmtree(only(store))
    submit(honest[0], known, store, TOLD | {"plugin": address})
    (verdict,) = check_store(store, known)
    assert verdict.holds
    assert verdict.text.endswith(f"; plugin {address}")
    words = ["submit", honest[0], "--who", "me", "--licence", "CC0-1.0", "--tuned-on", "nothing", "--runs", 1]
    for wrong in (address[:-1], address.replace("https", "http"), "https://example.org/a b@" + "0" * 40):
        refused = invoke(*words, "--out", tmp_path / "out", "--plugin", wrong)
        assert (refused.exit_code, len(refused.stderr.splitlines())) == (2, 1)
        assert "is not an address and a commit; write https://" in refused.stderr
    assert not (tmp_path / "out").exists()
    forge(only(store), _told(plugin="https://example.org/me"))
    assert any("plugin" in text for text in failed(store, known))


# -- reports ---------------------------------------------------------------------------------------------


def test_reports_do_not_rank_across_protocols(honest: tuple[Path, Path, Path], known: Catalogue) -> None:
    """Other transforms under one name are refused; official runs of two methods are two tables."""
    run = read_run(honest[0])
    assert run is not None
    assert run.record["protocol_id"] == "glyphs/like-for-like"
    facts = run.record["protocol_facts"] | {"train_transform": {"deterministic": False}}
    other = attrs.evolve(run, record={**run.record, "protocol_facts": facts})
    with pytest.raises(ConfigError, match="the runs mix protocols"):
        tables_of([run, other], known)
    assert len(tables_of([run, other], known, ["protocols"])) == 1
    official = [
        attrs.evolve(run, config=config, record={**run.record, "protocol": "official", "config": config})
        for name in ("ranpac", "simple-cil")
        for config in [run.config | {"baseline": {"name": name}}]
    ]
    tables = tables_of(official, known)
    assert [table.title.split(", ")[-1] for table in tables] == [
        "protocol official/ranpac",
        "protocol official/simple-cil",
    ]


def test_a_report_has_others_rows_of_the_same_protocol(
    honest: tuple[Path, Path, Path], store: Path, known: Catalogue, tmp_path: Path
) -> None:
    """Marked, paired on equal seeds, once; hostile words and packs reach neither terminal nor page."""

    def given(forged: Forged) -> None:
        forged.submission |= {"who": "<b>me|you", "original": "0" * 64}
        forged.record["config"]["baseline"]["features"] = 300

    words = ("report", honest[0], "--with", store, "--columns", "faa")
    assert invoke(*words).output.count("| ranpac") == 1  # my own run, given before
    pack = forge(only(store), given)
    add_badge(store, opened(pack, known), Badge(badge="re-predicted", holds=True, text="x"))
    printed = invoke(*words, "--against", "features=200").output
    assert "given by \\<b\\>me\\|you: recomputed, re-predicted; glyphs/like-for-like@1 | 1 |" in printed
    assert "<b>" not in printed
    assert "| 1 | +0.00 |" in printed
    if find_spec("vl_convert") is not None:  # of the extra `report`
        page = tmp_path / "page.html"
        assert invoke(*words, "--html", page).exit_code == 0
        assert "<b>me" not in page.read_text(encoding="utf-8")
    run = Path(shutil.copytree(honest[0], tmp_path / "run"))
    record = unseal_json(run / "record.json") | {"protocol_hash": "0" * 64}
    (run / "record.json").write_bytes(seal_json(record))
    assert "given by" not in invoke("report", run, "--with", store).output


def test_a_report_shows_a_method_whose_plugin_is_not_installed(
    honest: tuple[Path, Path, Path], store: Path, known: Catalogue, tmp_path: Path
) -> None:
    """A row of its own, which says where the plugin lies; the store's check and its list read it, too."""
    address = "https://example.org/me/method@" + "0a" * 20

    def stranger(forged: Forged) -> None:
        told = {"who": "me", "original": "0" * 64, "plugin": address, "method": "theirs_always"}
        forged.submission |= told
        components = forged.submission["components"]
        components["baseline theirs"] = components.pop("baseline ranpac").replace("lw2g", "their-package")
        forged.record["config"]["baseline"] = {"name": "theirs", "strength": 3}

    pack = forge(only(store), stranger)
    pack.parent.rename(pack.parents[1] / "theirs_always")
    result = invoke("report", honest[0], "--with", store, "--columns", "faa")
    assert result.exit_code == 0, result.output
    (row,) = [line for line in result.output.splitlines() if "theirs" in line]
    assert f"given by me: recomputed; glyphs/like-for-like@1; plugin {address}" in row.replace("\\:", ":")
    assert "left out" not in result.stderr
    assert not failed(store, known)
    if find_spec("vl_convert") is not None:  # of the extra `report`
        page = tmp_path / "page.html"
        assert invoke("report", honest[0], "--with", store, "--html", page).exit_code == 0
        assert address in page.read_text(encoding="utf-8")


def _nested_keys(path: Path) -> None:
    (path / "config.toml").write_text("a" + ".a" * 50_000 + " = 1\n")


def _nested_tables(path: Path) -> None:
    (path / "config.toml").write_text("a = " + "[" * 300 + "]" * 300)


def _endless_strings(path: Path) -> None:
    (path / "record.json").write_bytes(b'"' + b'\\"' * 200_000)


def _strings_for_numbers(path: Path) -> None:
    record = json.loads((path / "record.json").read_text()) | {"accuracy_matrix": [["a"] * 100_000]}
    (path / "record.json").write_text(json.dumps(record))


def _no_text(path: Path) -> None:
    (path / "submission.json").write_bytes(bytes(range(256)))


def _a_stray(path: Path) -> None:
    (path.parents[2] / "notes.txt").write_text("x")


def _a_link(path: Path) -> None:
    (path.parent / "0123456789ab").symlink_to(path)


def _no_protocol(path: Path) -> None:
    name = path.parents[4] / "protocols/glyphs/like-for-like@2.json"
    name.write_text('{"id": ' + "[" * 90_000)
    shutil.copytree(path, path.parents[2] / "like-for-like@2" / path.parent.name / path.name)


BROKEN = [
    _nested_keys,
    _nested_tables,
    _endless_strings,
    _strings_for_numbers,
    _no_text,
    _a_stray,
    _a_link,
    _no_protocol,
]


@pytest.mark.parametrize("break_it", BROKEN, ids=lambda break_it: break_it.__name__)
def test_what_is_broken_hides_nothing_else(
    honest: tuple[Path, Path, Path], store: Path, tmp_path: Path, break_it: Callable[[Path], None]
) -> None:
    """Each command that reads a store names the broken pack in a line, and shows the others all the same."""
    whole = forge(only(store), lambda forged: forged.submission.update(who="whole", original="0" * 64))
    hurt = Path(shutil.copytree(honest[2], whole.with_name("hurt")))
    hurt = forge(hurt, lambda forged: forged.record["config"]["baseline"].update(features=300))
    break_it(hurt)
    checked = invoke("store", "check", store)
    assert checked.exit_code == 1
    assert f"holds  {whole.relative_to(store)}" in checked.output
    assert "FAILS" in checked.output
    reported = invoke("report", honest[0], "--with", store, "--columns", "faa")
    assert reported.exit_code == 0, reported.output
    assert "given by whole" in reported.stdout
    grid = tmp_path / "grid.toml"
    sizes = ", ".join(f"{key} = {value}" for key, value in SMALL.items())
    grid.write_text(
        f"[base]\nbenchmark = {{name = 'glyphs', {sizes}}}\n[axes]\nseed = [3]\n"
        "[[rows]]\nbaseline = {name = 'ranpac', features = 200}\n"
    )
    missing = invoke("store", "missing", store, "--grid", grid)
    assert missing.stdout == "missing: 0 of 1 cell\n"
    for told in (reported.stderr, missing.stderr):
        assert told.startswith("note: left out of the store: ")
        assert len(told.splitlines()) == 1
    packed = invoke(
        *("submit", honest[0], "--out", store, "--who", "me", "--licence", "CC0-1.0"),
        *("--tuned-on", "nothing", "--runs", 1),
    )
    assert "exists already" in packed.stderr or packed.exit_code == 0


def test_a_metric_of_a_plugin_stays_in_the_run() -> None:
    """A store holds numbers that it computes again, so a pack leaves the others out."""
    record = {
        "config": {"benchmark": {"name": "x"}},
        "sources": [{"benchmark": {"name": "x"}}],
        "environment": {},
        "class_names": [],
        "files": {},
        "metrics": {"faa": 1.0, "theirs": 2.0},
        "metric_definitions": {"theirs": {"definition": "", "unit": "", "digits": 2, "plugin": "p 1"}},
    }
    told = public(record, {})
    assert told["metrics"] == {"faa": 1.0}
    assert told["metric_definitions"] == {}


def test_cells_that_nobody_has_run_have_the_minutes_of_like_ones(store: Path, tmp_path: Path) -> None:
    """A cell with other numbers is missing, a run's own is not; a method that nobody ran has no minutes."""
    sizes = ", ".join(f"{key} = {value}" for key, value in SMALL.items())
    grid = tmp_path / "grid.toml"
    grid.write_text(
        f"[base]\nbenchmark = {{name = 'glyphs', {sizes}}}\nprecision = '32-true'\n[axes]\nseed = [3, 4]\n"
        "[[rows]]\nbaseline = {name = 'ranpac', features = 200}\n"
        "[[rows]]\nbaseline = 'simple-cil'\naxes = {seed = [3]}\n"
    )
    lines = invoke("store", "missing", store, "--grid", grid).output.splitlines()
    assert len(lines) == 3
    assert re.search(r"seed 4.*: \d+\.\d min$", lines[1])
    assert "simple-cil" in lines[0]
    assert lines[0].endswith(": ? min")
    assert lines[2] == "missing: 2 of 3 cells"
