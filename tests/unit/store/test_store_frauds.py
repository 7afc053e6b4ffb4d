"""Each fraud of a pack fails the check that is there for it; badges say what was predicted again."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.numpy import save

from lw2g.cli.main import main
from lw2g.disk.protocol import sha_of_labels
from lw2g.interfaces.metric import CORE_METRICS
from lw2g.model.exporting import export_run
from lw2g.registry.catalogue import Catalogue
from lw2g_store.badges import predicted_again
from lw2g_store.packs import examine, method_of, verify
from lw2g_store.store_checks import check_store
from store_packs import SMALL, Forged, failed, forge, only


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


def _without(table: str, key: str) -> Callable[[Forged], None]:
    return lambda forged: forged.record[table].pop(key)


def _moved(**motion: Any) -> Callable[[Forged], None]:
    honest = {"task": 1, "new": 0.1, "old": 0.1, "times": None, "held": [], "carried": 2, "alarming": False}
    return _set("findings", to={"motions": [honest | motion]})


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
    "older record": (_set("protocol_hash", to=None), "run it anew: lw2g.run('RUN/config.toml'"),
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
        "json: 'record.json': ValueError: class -7 is none of the 10 of class_names",
    ),
    "label below zero": (
        _set("class_order", 0, to=-7, anew=True),
        "stream: 'record.json': class_order has label -7",
    ),
    "huge class": (
        _set("task_classes", 0, 0, to=2**40),
        f"json: 'record.json': ValueError: class {2**40} is none of the 10 of class_names",
    ),
    "set below none": (
        lambda forged: forged.columns.update(set=np.full_like(forged.columns["predicted"], -5)),
        "classes: 'predictions.safetensors': set has -5",
    ),
    "named classes": (_set("class_names", 0, to="another"), "stream: 'record.json': class_names are not"),
    "long domains": (_set("domains", to=["a" * 900] * 5), "stream: 'record.json': domains are not 5 names"),
    "few hashes": (_set("image_hashes", to=["0" * 8]), "images: 'record.json': 1 image_hashes of "),
    "words as hashes": (
        lambda forged: forged.record["image_hashes"].__setitem__(0, "A WORD 8"),
        "images: 'record.json': image_hashes has 'A WORD 8', no eight hexadecimal digits",
    ),
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
    "escapes": (_told(who="a\x1b[2Jb"), "json: 'submission.json': who: 'a\\x1b[2Jb' holds"),
    "no licence": (_told(licence="mine"), "json: 'submission.json': "),
    "components that command": (
        lambda forged: forged.submission.update(components={"policy \x1b[2J": "y 1"}),
        "json: 'submission.json': components: 'policy \\x1b[2J' holds markup or control",
    ),
    "long component": (
        lambda forged: forged.submission.update(components={"policy x": "y" * 1_001}),
        "json: 'submission.json': components: 'yyy",
    ),
    "paper of a script": (_told(paper="javascript:alert(1)"), "json: 'submission.json': "),
    "plugin elsewhere": (_told(plugin=f"https://x.org/../../y@{'0a' * 20}"), "json: 'submission.json': "),
    "plugin at no host": (_told(plugin=f"https://x/y@{'0a' * 20}"), "json: 'submission.json': "),
    "hostile finding": (
        _set("findings", to={"a": ["<img src=x>"]}),
        "keys: 'record.json': findings: '<img src=x>' holds",
    ),
    "hostile key": (_set("findings", to={"a\x1b[2J": 1}), "keys: 'record.json': findings: 'a\\x1b[2J' holds"),
    "hostile machine": (
        _set("environment", "device_name", to="`x`"),
        "keys: 'record.json': environment: '`x`' holds",
    ),
    "long reason": (_set("precision", "reason", to="x" * 1_001), "keys: 'record.json': precision: 'xxx"),
    "motion of no task": (_moved(task=5), "findings: 'record.json': findings.motions has one of task 5"),
    "motion of the first task": (
        _moved(task=0),
        "findings: 'record.json': findings.motions has one of task 0",
    ),
    "held class of none": (
        _moved(held=[10]),
        "json: 'record.json': ValueError: class 10 is none of the 10 of class_names",
    ),
    "motion below zero": (_moved(old=-1.0), "findings: 'record.json': findings.motions has one of task 1"),
    "domain ahead of none": (_set("next_domain", to={}), "json: 'record.json': "),
    "free of charge": (
        lambda forged: forged.record["storage"].update(dict.fromkeys(forged.record["storage"], 0)),
        "costs: 'record.json': every value of storage is 0",
    ),
    "storage below zero": (
        _set("storage", "statistics", to=-1),
        "costs: 'record.json': storage.statistics is -1",
    ),
    "no storage": (_without("storage", "parameters"), "costs: 'record.json': storage.parameters is missing"),
    "no time": (_set("seconds", "total", to=0), "costs: 'record.json': seconds.total is 0, which no run"),
    "fewer than its parts": (
        _set("seconds", "training", to=1e9),
        "costs: 'record.json': seconds.training is",
    ),
    "time not told": (
        _without("seconds", "per_test_image"),
        "costs: 'record.json': seconds.per_test_image is m",
    ),
    "images for nothing": (
        _set("seconds", "per_test_image", to=0),
        "costs: 'record.json': seconds.per_test_image",
    ),
    "no operations": (
        _set("flops", "inference_per_image", to=0.0),
        "costs: 'record.json': flops.inference_per",
    ),
    "operations not told": (
        _set("flops", to={}),
        "costs: 'record.json': flops.inference_per_image is missing",
    ),
    "no speed": (_set("images_per_second", to=-1.0), "costs: 'record.json': images_per_second is -1.0"),
    "expert for nothing": (
        _set("expert", to={"forwards_per_image": 0, "numbers": 9, "temperature": 1.0}),
        "costs: 'record.json': expert.forwards_per_image is 0",
    ),
    "NaN": (_set("metrics", "faa", to=math.nan), "json: 'record.json' is no JSON: NaN is no number"),
    "nested record": (
        _set("findings", to={"a": json.loads("[" * 25 + "]" * 25)}),
        "json: 'record.json' is nested",
    ),
    "another type": (
        _set("accuracy_matrix", to=[["<b>"]]),
        "json: 'record.json': expected a number but got '<b>' at",
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


@pytest.mark.parametrize("name", sorted(CORE_METRICS))
def test_no_metric_is_left_out(store: Path, known: Catalogue, name: str) -> None:
    """A run with a bad number would look like one without it: whatever every run has, a pack has."""
    forge(only(store), lambda forged: forged.record["metrics"].pop(name))
    (text,) = failed(store, known)
    if name == "ssp":  # it says whether the method has sets, which is a part of its name
        assert text.startswith("seal: 'submission.json' calls the method ")
    else:
        assert text == f"record.json: metrics: {name} is missing, and every run has it (1 such metrics)"


def test_equal_predictions_are_told(store: Path, known: Catalogue) -> None:
    """A copy with another clock, under another submitter, says whose predictions it has."""
    first = only(store)

    def another(forged: Forged) -> None:
        forged.submission["who"] = "another"
        forged.record["seconds"]["total"] += 1

    second = forge(Path(shutil.copytree(first, first.with_name("copy"))), another)
    folders = [str(path.relative_to(store)) for path in (first, second)]
    verdicts = {verdict.what: verdict for verdict in check_store(store, known)}
    assert all(verdict.holds for verdict in verdicts.values())
    for folder, other in zip(folders, reversed(folders), strict=True):
        assert verdicts[folder].text.endswith(f"; the same predictions as 1 other run, among them {other}")
    (added,) = check_store(store, known, [f"A\t{folders[1]}/record.json"])
    assert added.text == verdicts[folders[1]].text


@pytest.mark.parametrize(
    ("content", "code", "said"),
    [
        (b"A\truns/\xff\xfe/record.json\n", 1, r"'runs/\\xff\\xfe/record.json' is no file of a run"),
        (
            "A\truns/x\n".encode("utf-16"),
            2,
            "is no text in UTF-8; write it as git does: git diff --name-status",
        ),
        (b"\xff" * 9, 2, "changed: line 1, "),
        (
            b"A\truns/x\ndiff --git a/x b/x\n",
            2,
            "error: changed: line 2, 'diff --git a/x b/x', is no change of a file; write the list by: git "
            "diff --no-renames --name-status BASE HEAD\n",
        ),
    ],
)
def test_a_list_of_changes_may_hold_any_bytes(
    honest: tuple[Path, Path, Path], tmp_path: Path, content: bytes, code: int, said: str
) -> None:
    """Names in other encodings are refused as names, and what is no list at all in one line."""
    path = tmp_path / "changed.txt"
    path.write_bytes(content)
    result = CliRunner().invoke(main, ["store", "check", str(honest[1]), "--changed", str(path)])
    assert result.exit_code == code
    assert said in result.output


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


# -- badges ------------------------------------------------------------------------------------------


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
    config = invented.record["config"] | {"baseline": {"name": "x"}}
    other = attrs.evolve(invented, record=invented.record | {"config": config})
    (badge,) = predicted_again(other, tmp_path / "model", data=None, fresh=None, device="cpu")
    assert "; the model is of another run: its baseline is " in badge.text


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

    monkeypatch.setattr("lw2g.model.saved.open_model", lambda *_, **__: Memory())
    badges = predicted_again(pack, Path("model"), data=None, fresh=9, device="cpu")
    assert [badge.holds for badge in badges] == [True, False]
