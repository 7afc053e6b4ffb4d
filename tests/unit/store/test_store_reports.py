"""Reports stand runs of a store beside those of a user."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import attrs
import pytest

import lw2g
from lw2g.disk.sealed import seal_json, unseal_json
from lw2g.errors import ConfigError
from lw2g.registry.catalogue import Catalogue
from lw2g.results.found_runs import read_run
from lw2g.results.right_answers import right_answers_of
from lw2g.results.table import tables_of
from lw2g_store.badges import Badge, add_badge
from lw2g_store.layout import add_protocol, init, protocol_of_pack
from lw2g_store.packs import opened
from lw2g_store.stored import _nearest, _without_order, with_answers
from lw2g_store.submit import public
from store_packs import Forged, failed, forge, invoke, only


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
        "protocol official/ranpac (changed: benchmark.increment)",
        "protocol official/simple-cil (changed: benchmark.increment)",
    ]


def test_packs_are_reported_with_their_predictions(
    honest: tuple[Path, Path, Path], store: Path, known: Catalogue, tmp_path: Path
) -> None:
    """A folder of packs is a report as that of their runs is; one that does not hold is left out, named."""
    run, pack = read_run(honest[0]), read_run(only(store))
    assert run is not None
    assert pack is not None
    assert right_answers_of(pack) is None
    (held,), left_out = with_answers([pack], known)
    own, of_pack = right_answers_of(run), right_answers_of(held)
    assert own is not None
    assert of_pack is not None
    assert of_pack.right.tolist() == own.right.tolist()
    assert left_out == []
    assert protocol_of_pack(only(store)) == "glyphs/like-for-like@1"
    assert protocol_of_pack(honest[0]) == ""
    shutil.copytree(only(store), tmp_path / "outside")
    assert invoke("report", tmp_path / "outside", "--columns", "faa").exit_code == 0
    shutil.copytree(only(store), tmp_path / "broken")
    (tmp_path / "broken" / "predictions.safetensors").write_bytes(b"")
    result = invoke("report", tmp_path, honest[0], "--columns", "faa")
    assert result.exit_code == 1
    assert f"warning: left out: '{tmp_path / 'broken'}': " in result.output


def test_a_check_counts_no_badge_as_a_run(store: Path, known: Catalogue) -> None:
    """Badges lie in files of their own, one for each run that has any."""
    assert "everything holds (1 run)\n" in invoke("store", "check", store).output
    for name in ("re-predicted", "re-predicted, fresh"):
        add_badge(store, opened(only(store), known), Badge(badge=name, holds=True, text="x"))
    assert "everything holds (1 run, 1 file of badges)\n" in invoke("store", "check", store).output


def test_a_report_has_others_rows_of_the_same_protocol(
    honest: tuple[Path, Path, Path], store: Path, known: Catalogue, tmp_path: Path
) -> None:
    """Marked, paired on equal seeds, once; hostile words and packs reach neither terminal nor page."""

    def given(forged: Forged) -> None:
        forged.submission |= {"who": "<b>me|you", "original": "0" * 64}
        forged.submission |= {"tuned_on": "epochs, on train", "runs": 12}
        forged.record["config"]["baseline"]["features"] = 300

    words = ("report", honest[0], "--with", store, "--columns", "faa")
    alone = invoke(*words)
    assert alone.output.count("| ranpac") == 1  # my own run, given before
    assert f"note: of 1 run in {str(store)!r} none was added: 1 is among these\n" in alone.stderr
    pack = forge(only(store), given)
    add_badge(store, opened(pack, known), Badge(badge="re-predicted", holds=True, text="x"))
    printed = invoke(*words, "--against", "features=200").output
    assert "| ranpac[features=300], stored | 1 |" in printed
    giver = (
        "stored: given by \\<b\\>me\\|you (recomputed, re-predicted; glyphs/like-for-like@1; "
        "tuned on: epochs, on train; chosen from 12 runs)"
    )
    assert printed.count("given by") == printed.count(giver) == 1  # not in each row and table
    told = {
        "who": "<b>me|you",
        "protocol": "glyphs/like-for-like@1",
        "badges": ["recomputed", "re-predicted"],
        "tuned_on": "epochs, on train",
        "runs": 12,
    }
    mine, theirs = lw2g.report(honest[0], store=store, columns="faa").rows()
    assert [mine[f"given_{name}"] for name in told] == [None] * len(told)
    assert {name: theirs[f"given_{name}"] for name in told} == told
    assert ",recomputed; re-predicted," in invoke(*words, "--format", "csv").output
    assert "<b>" not in printed
    assert "| 1 | the same |" in printed
    if find_spec("vl_convert") is not None:  # of the extra `report`
        page = tmp_path / "page.html"
        assert invoke(*words, "--html", page).exit_code == 0
        assert "<b>me" not in page.read_text(encoding="utf-8")
    run = Path(shutil.copytree(honest[0], tmp_path / "run"))
    record = unseal_json(run / "record.json") | {"protocol_hash": "0" * 64}
    (run / "record.json").write_bytes(seal_json(record))
    other = invoke("report", run, "--with", store)
    assert "given by" not in other.output
    assert "none was added: 1 has another protocol (glyphs/like-for-like@1)\n" in other.stderr
    record["protocol_facts"]["test_ids"] = "of that order"
    record["class_order"].reverse()
    (run / "record.json").write_bytes(seal_json(record))
    other = invoke("report", run, "--with", store)
    assert "@1), of these glyphs/like-for-like@1 is nearest, with another class order\n" in other.stderr
    (only(store) / "predictions.safetensors").write_bytes(b"")
    assert f"note: of 1 run in {str(store)!r} none was added: 1 does not hold\n" in invoke(*words).stderr


ORDERED = {"class_order": [3, 2, 1, 0], "fingerprints": {"benchmark": "that order's"}}
"""A record of another class order."""
OTHERWISE = {"backbone": {"sha256": "0" * 64}, "domains": ["photo"]}


@pytest.mark.parametrize(
    ("benchmark", "changes", "told"),
    [
        ("glyphs", [OTHERWISE, ORDERED], "glyphs/like-for-like@2 is nearest, with another class order"),
        ("glyphs", [ORDERED | {"task_classes": [[0]]}], "@1 is nearest, with another class order, tasks"),
        ("glyphs", [OTHERWISE], "@1 is nearest, with another backbone, domains"),
        ("folder", [ORDERED], "@1 is nearest, with another class order or other data"),
        ("glyphs", [], None),
    ],
)
def test_the_nearest_protocol_is_that_of_the_fewest_other_facts(
    honest: tuple[Path, Path, Path],
    known: Catalogue,
    tmp_path: Path,
    benchmark: str,
    changes: list[dict[str, Any]],
    told: str | None,
) -> None:
    """Of the same benchmark; what changes with a class order is no other fact."""
    run = read_run(honest[0])
    assert run is not None
    config = {**run.config, "benchmark": {"name": benchmark}}
    mine = attrs.evolve(run, config=config, record={**run.record, "config": config})
    init(tmp_path / "other")
    digits = {**run.config, "benchmark": {"name": "digits"}}
    names = []
    for number, change in enumerate([{"config": digits}, *changes]):
        path = add_protocol(tmp_path / "other", {**mine.record, "protocol_hash": str(number), **change}, [])
        names.append(path.relative_to(tmp_path / "other" / "protocols").with_suffix("").as_posix())
    found = list(_nearest(tmp_path / "other", names, [mine], known))
    assert len(found) == (told is not None)
    assert told is None or found[0].endswith(told)


OWN = "; tuned on: nothing; the only run"
"""What is told of a run that its submitter has tuned on nothing."""
APART = {
    "stored 1 |": f"stored 1: given by you (recomputed, re-predicted; glyphs/like-for-like@1{OWN})",
    "stored 2 |": f"stored 2: given by you (recomputed; glyphs/like-for-like@2{OWN})",
}


@pytest.mark.parametrize(
    ("changed", "rows"),
    [
        ({}, {"stored | 2 |": f"stored: given by you (recomputed; glyphs/like-for-like@1, @2{OWN})"}),
        ({"features": 300}, APART),
        ({"size": 48}, APART),
    ],
)
def test_stored_runs_in_two_class_orders_are_one_row(
    honest: tuple[Path, Path, Path],
    store: Path,
    known: Catalogue,
    tmp_path: Path,
    changed: dict[str, int],
    rows: dict[str, str],
) -> None:
    """As runs of one's own are: the row has both versions of the protocol, and the badges of both.

    Runs that differ in an option or another fact of the protocol, too, are two rows.
    """

    def reorder(forged: Forged) -> None:
        forged.record["class_order"].reverse()
        forged.record["fingerprints"]["benchmark"] = "0" * 64
        forged.record["config"]["baseline"]["features"] = changed.get("features", 200)
        forged.record["protocol_facts"]["test_transform"]["size"] = changed.get("size", 32)
        forged.hash_anew()

    run = Path(shutil.copytree(honest[0], tmp_path / "run"))
    own = Forged(unseal_json(run / "record.json"), {}, {})
    reorder(own)
    (run / "record.json").write_bytes(seal_json(own.record))
    add_protocol(store, own.record, [])
    first = forge(only(store), lambda forged: forged.submission.update(who="you", original="0" * 64))
    add_badge(store, opened(first, known), Badge(badge="re-predicted", holds=True, text="x"))
    other = first.parents[1].with_name("like-for-like@2") / first.parent.name / first.name
    forge(Path(shutil.copytree(first, other)), reorder)
    printed = invoke("report", honest[0], run, "--with", store, "--columns", "faa", "--mix", "protocols")
    assert printed.exit_code == 0, printed.output
    assert printed.stderr == ""
    found = [line for line in printed.output.splitlines() if line.startswith("|") and "stored" in line]
    assert len(found) == len(rows)
    for row, line in zip(rows, found, strict=True):
        assert row in line
    assert f"- {'; '.join(rows.values())}\n" in printed.output


@pytest.mark.parametrize(
    ("benchmark", "hashes", "alike"),
    [
        ({"name": "folder"}, ["0a", "0b"], True),
        ({"name": "folder"}, ["0b", "0c"], False),
        ({"name": "folder"}, None, False),
        ({"name": "folder", "test_share": 0.2}, ["0b", "0c"], True),  # the seed of the order draws them
        ({"name": "glyphs"}, ["0b", "0c"], True),  # the name says which data
    ],
)
def test_orders_of_changed_photographs_are_no_row(
    honest: tuple[Path, Path, Path],
    known: Catalogue,
    benchmark: dict[str, Any],
    hashes: list[str] | None,
    alike: bool,
) -> None:
    """A folder is the same data in another order if the same images are tested."""
    run = read_run(honest[0])
    assert run is not None
    config = {**run.config, "benchmark": benchmark}
    one, other = (
        attrs.evolve(run, config=config, record={**run.record, "config": config, "image_hashes": of})
        for of in (["0b", "0a"], hashes)
    )
    assert (_without_order(one, known) == _without_order(other, known)) is alike


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
    assert "| theirs x always, stored | 1 |" in result.output
    giver = f"stored: given by me (recomputed; glyphs/like-for-like@1{OWN}; plugin {address})"
    assert giver in result.output.replace("\\:", ":")
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
    assert "stored: given by whole (" in reported.stdout
    assert reported.stderr.startswith("note: left out of the store: ")
    assert len(reported.stderr.splitlines()) == 1
    packed = invoke(
        *("submit", honest[0], "--out", store, "--who", "me", "--licence", "CC0-1.0"),
        *("--tuned-on", "nothing", "--runs", 1),
    )
    assert "exists already" in packed.stderr or packed.exit_code == 0


def test_a_metric_of_a_plugin_stays_in_the_run(known: Catalogue) -> None:
    """A store holds numbers that it computes again, so a pack leaves the others out."""
    record = {
        "config": {"benchmark": {"name": "glyphs"}},
        "sources": [{"benchmark": {"name": "glyphs"}}],
        "environment": {},
        "class_names": [],
        "files": {},
        "metrics": {"faa": 1.0, "theirs": 2.0},
        "metric_definitions": {"theirs": {"definition": "", "unit": "", "digits": 2, "plugin": "p 1"}},
    }
    told = public(record, {}, known)
    assert told["metrics"] == {"faa": 1.0}
    assert told["metric_definitions"] == {}
