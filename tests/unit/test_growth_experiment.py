"""The fork experiment: histories, what is forked, and every figure of the table on outcomes made by hand."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import attrs
import numpy as np
import pytest
import timm
import tomli_w
import torch
from safetensors.torch import save_file

from installed import load_instead
from lw2g.interfaces.pool import Routing
from lw2g.lifecycle.run_opening import reopen
from lw2g.sweeps.grid import read_grid
from lw2g.vit.taps import Tap
from lw2g.vit.weights import load_weights, require_loaded
from script_modules import importing

FOLDER = Path(__file__).resolve().parents[2] / "experiments" / "growth"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch):
    """Import a module of the experiment by name."""
    with importing(monkeypatch, FOLDER) as module_of:
        yield module_of


def test_histories_vary_and_number_new_sets_in_turn(script):
    """A history depends on its seed alone; sets appear in turn, and some are reused."""
    behaviour = script("streams").behaviour
    found = [behaviour(10, seed) for seed in range(20)]
    assert found == [behaviour(10, seed) for seed in range(20)]
    assert len(set(found)) > 15
    for history in found:
        assert history[0] == 0
        assert all(one <= max(history[:task]) + 1 for task, one in enumerate(history) if task)
    assert 3.5 < sum(max(history) + 1 for history in found) / 20 < 7.5


def test_every_choice_of_every_decision_is_forked_once(script):
    """Each live set under each arm and one new set, from the second task on; again for each repetition."""
    forks = script("forks")
    found = list(forks.forks((0, 1, 0), ["protected", "free"], 2, []))
    assert len(found) == len(set(found)) == 2 * ((1 + 2) + (1 + 4))
    assert {one.choice for one in found if one.task == 1} == {"grow", 0}
    assert {one.task for one in forks.forks((0, 1, 0), ["free"], 1, [2])} == {2}


def test_rules_are_compared_on_orders_of_their_own(script, tmp_path):
    """Each seed draws its order; a grouping by hand is a fixed map, the oracle is told, options are read."""
    rules, streams = script("rules"), script("streams")
    names = [name for kinds in streams.KINDS.values() for names in kinds.values() for name in names.split()]
    for number, name in enumerate(sorted(names)):
        (tmp_path / "cifar100" / "train" / f"{number:03}_{name}").mkdir(parents=True)
    arguments = SimpleNamespace(
        data=tmp_path, seeds=[0, 1], baselines=["dual-prompt+ridge"], epochs=2, routing="published",
        policies=["always", "hand", "oracle", "threshold:measure=energy,threshold=0.25"], weights=None,
    )  # fmt: skip
    grid = tmp_path / "grid.toml"
    grid.write_text(tomli_w.dumps(rules.grid("groups", arguments)))
    cells = [cell.settings for cell in read_grid(grid)]
    orders = {tuple(one["benchmark.class_order"]) for one in cells}
    assert len(cells) == 8
    assert len(orders) == 2
    assert {one["baseline.head"] for one in cells} == {"ridge"}
    first = [one for one in cells if one["run.seed"] == 0]
    always, hand, oracle, threshold = first
    assert len(hand["policy.map"]) == 10
    assert max(hand["policy.map"]) == 4
    assert oracle["retrieval.name"] == "oracle"
    assert "retrieval.name" not in always
    assert threshold["policy.measure"] == "energy"
    assert threshold["policy.threshold"] == 0.25
    arguments.policies = ["hand"]
    assert rules.rows(streams.natural(tmp_path, 0), 0, arguments) == []


def test_rules_are_compared_seed_by_seed(script, tmp_path, monkeypatch):
    """A row's difference to always pairs runs of one seed; what has not finished is left out."""
    rules = script("rules")
    records = {}
    monkeypatch.setattr(
        rules,
        "read_run",
        lambda path: SimpleNamespace(state=path.name.partition("-")[0], record=records.get(path.name)),
    )
    (tmp_path / "cells").mkdir()
    found = {"always": [40.0, 50.0], "one": [41.0, 53.0]}
    for policy, values in found.items():
        for seed, faa in enumerate(values):
            name = f"finished-{policy}-{seed}"
            head = 'baseline = { name = "b", head = "ridge" }'
            cell = f'{head}\npolicy.name = "{policy}"\nrun.seed = {seed}\n'
            (tmp_path / "cells" / f"{name}.toml").write_text(cell)
            (tmp_path / "cells" / f"running-{policy}-{seed}.toml").write_text(cell)
            metrics = {"faa": faa, "ssp": 1.0, "pra": None, "chance_pra": None, "ffm": 9.0}
            seconds = {"evidence": 5.0, "total": 20.0}
            storage = {"prompt_vectors": 30, "basis_vectors": 7 + 2 * seed}
            records[name] = {"metrics": metrics, "seconds": seconds, "storage": storage}
    always, one = rules.table(tmp_path).splitlines()[2:]
    assert always == "| b+ridge | always | 2 | 45.0 | 0.00 ± 0.00 | 1.0 | - (-) | 9.0 | 30 + 8 | 25.0 |"
    assert one == "| b+ridge | one | 2 | 47.0 | 2.00 ± 12.71 | 1.0 | - (-) | 9.0 | 30 + 8 | 25.0 |"


def decision(table, values, *, likeness=None, history=(0, 1, 2), again=None):
    """A decision with given outcomes ``{choice: FAA}``, in one or two repetitions."""
    readings = likeness or {}
    candidates = [
        {
            "set": one,
            "rank": 10 * one,
            "captured": None,
            "excluded": None,
            "measures": {"energy": {"value": -readings[one], "alike": -1}} if one in readings else {},
        }
        for one in sorted(set(history))
    ]
    outcomes = [values] if again is None else [values, again]
    return table.Decision(task=len(history), history=history, candidates=candidates, outcomes=outcomes)


def cluster(table, *decisions, groups=()):
    """A cluster of decisions."""
    return table.Clustered(name="toy", groups=groups, decisions=decisions)


def test_figures_by_hand(script):
    """Rank correlation, worth of the choice, gain over growing and regret are what they are by hand."""
    table = script("table")
    outcomes = {"grow": 50.0, 0: 52.0, 1: 47.0, 2: 49.0}
    again = {"grow": 51.0, 0: 50.0, 1: 46.0, 2: 52.0}
    one = cluster(table, decision(table, outcomes, likeness={0: 3.0, 1: 1.0, 2: 2.0}, again=again))
    reading = table.readings([one])["energy"]
    assert reading(one.decisions[0]) == {0: 3.0, 1: 1.0, 2: 2.0}
    assert table.mean_tau(one, reading) == pytest.approx(1.0)  # means are 51, 46.5 and 50.5
    assert table.ceiling(one) == pytest.approx(1 / 3)
    assert table.pick(one, reading) == pytest.approx(51 - 148 / 3)
    assert table.gain(one, lambda _: 0) == pytest.approx(0.5)
    # the best of the first repetition is set 0, of the second set 2
    assert table.regret(one, lambda _: "grow") == pytest.approx(((50 - 51) + (49 - 50)) / 2)
    assert table.agreement(one, lambda _: 0) == 100.0
    assert table.regret(cluster(table, decision(table, outcomes)), lambda _: 0) is None


def test_what_rank_tells_is_taken_off(script):
    """The partial tau is Kendall's formula over pairs within decisions; a reading that is rank says none."""
    table = script("table")
    first = decision(table, {"grow": 0.0, 0: 3.0, 1: 2.0, 2: 1.0}, likeness={0: 3.0, 1: 1.0, 2: 2.0})
    # another level, and another order
    second = decision(table, {"grow": 0.0, 0: 60.0, 1: 90.0}, likeness={0: 31.0, 1: 32.0}, history=(0, 1))
    one = cluster(table, first, second)
    # of the four pairs the reading agrees with the outcome in 3, with rank in 2; the outcome with rank in 1
    with_outcome, with_rank, outcome_with_rank = 2 / 4, 0 / 4, -2 / 4
    expected = (with_outcome - with_rank * outcome_with_rank) / (1 - outcome_with_rank**2) ** 0.5
    found = table.readings([one])
    assert table.beyond_rank(one, found["energy"]) == pytest.approx(expected)
    assert table.beyond_rank(one, found["(least rank)"]) is None
    assert table.beyond_rank(cluster(table, first), lambda _: {0: 1.0}) is None


def test_intervals_are_over_clusters(script):
    """Mean and Student's t over clusters; one cluster has no interval, none no mean."""
    over_clusters = script("table").over_clusters
    found = over_clusters([1.0, 3.0, None, float("nan")])
    assert (found.mean, found.clusters) == (2.0, 2)
    assert found.half == pytest.approx(12.706, abs=1e-3)
    assert str(over_clusters([2.5])) == "2.50"
    assert str(over_clusters([])) == "-"


def test_auc_counts_pairs(script):
    """The share of pairs of decisions in which reuse pays where the reading is higher."""
    table = script("table")
    pays, does_not = {"grow": 1.0, 0: 2.0}, {"grow": 2.0, 0: 1.0}
    one = cluster(
        table,
        decision(table, pays, likeness={0: 0.9}, history=(0,)),
        decision(table, does_not, likeness={0: 0.5}, history=(0, 0)),
        decision(table, does_not, likeness={0: 0.95}, history=(0, 0, 0)),
    )
    assert table.auc([one], table.readings([one])["energy"]) == 0.5
    assert table.auc([cluster(table, one.decisions[0])], table.readings([one])["energy"]) is None


def test_a_person_takes_the_last_of_the_same_group(script):
    """By hand: the set of the last task of the group, wherever the history has put it; else a new one."""
    table = script("table")
    rule = table._by_hand((0, 1, 0, 2))
    assert rule(decision(table, {}, history=(0, 1))) == 0
    assert rule(decision(table, {}, history=(0, 0, 1))) == "grow"


def test_a_line_cut_short_is_not_read(script, tmp_path):
    """What a kill has left half written is run again."""
    log = tmp_path / "forks.jsonl"
    log.write_text(json.dumps({"task": 1}) + "\n" + '{"task": 2, "cho')
    assert script("forks").read_forks(log) == [{"task": 1}]
    assert script("forks").read_forks(tmp_path / "none") == []


@pytest.mark.slow
def test_a_cluster_forks_every_decision_goes_on_and_prints_its_table(script, tmp_path, monkeypatch, capsys):
    """History, forks and tables on few glyphs; a second call runs what is missing alone, alike."""
    streams, forks, table = (script(name) for name in ("streams", "forks", "table"))
    sizes = {"increment": 5, "classes_per_family": 3, "train_per_class": 10, "test_per_class": 4}
    options = {"benchmark.name": "glyphs", **{f"benchmark.{key}": value for key, value in sizes.items()}}
    toy = streams.Stream(options=options, groups=(0, 1, 0), tasks=3)
    monkeypatch.setitem(forks.STREAMS, "natural", lambda data, seed: toy)
    base = tmp_path / "base.toml"
    base.write_text(
        '[policy]\nname = "fixed"\n[retrieval]\nname = "lda"\n[baseline]\nepochs = 1\n'
        '[routing]\nmix = "all"\nheld_back = 2\n[growth]\nimages = 16\n'
    )
    arguments = ["--streams", "natural", "--baselines", "s-prompt-plus-plus", "--seeds", "1", "--no-table"]
    arguments += ["--base", str(base), "--out", str(tmp_path / "out"), "--arms", "protected", "free"]
    arguments += ["--measures", "energy", "hindrance"]
    monkeypatch.setattr(sys, "argv", ["forks.py", *arguments])
    forks.main()
    log = tmp_path / "out" / "natural-s-prompt-plus-plus-1" / "forks.jsonl"
    found = forks.read_forks(log)
    history = streams.behaviour(3, 1)
    wanted = list(forks.forks(history, ["protected", "free"], 1, []))
    assert [(row["task"], row["choice"], row["arm"]) for row in found] == [
        (one.task, one.choice, one.arm) for one in wanted
    ]
    for row in found:
        assert set(row["routings"]) == {"soft", "hard", "told", "within"}
        assert all(0 <= each["faa"] <= 100 for each in row["routings"].values())
    log.write_text("".join(json.dumps(row) + "\n" for row in found[1:]) + '{"task": 1')
    forks.main()
    again = forks.read_forks(log)
    assert len(again) == len(found)
    assert again[-1]["routings"] == found[0]["routings"]
    monkeypatch.setattr(sys, "argv", ["table.py", str(tmp_path / "out")])
    table.main()
    printed = capsys.readouterr().out
    assert "natural-s-prompt-plus-plus: 2 decisions of 1 clusters" in printed
    assert "| energy |" in printed
    assert "| (by hand) |" in printed
    assert "| threshold energy |" in printed
    monkeypatch.setattr(sys, "argv", ["arms.py", str(tmp_path / "out")])
    script("arms").main()
    monkeypatch.setattr(sys, "argv", ["angles.py", str(log.parent / "run")])
    script("angles").main()
    printed = capsys.readouterr().out
    assert "| free | " in printed
    candidates = sum(max(history[:task]) + 1 for task in (1, 2))
    assert f"| s-prompt-plus-plus, fixed, seed 1 | {candidates} |" in printed


def test_arms_are_set_against_growing_and_against_no_constraint(script):
    """Each reuse is paired with the fork that grows at its task, and with the free one of its set."""
    arms = script("arms")

    def fork(choice, arm, new, forgetting, faa, task=2):
        told = {"new": new, "forgetting": forgetting, "faa": faa}
        return {"task": task, "outcome": 0, "choice": choice, "arm": arm, "routings": {"hard": told}}

    found = arms.compared(
        [
            fork("grow", "protected", 60.0, 2.0, 50.0),
            fork(0, "protected", 58.0, 5.0, 48.0),
            fork(0, "free", 64.0, 11.0, 45.0),
            fork(1, "free", 62.0, 9.0, 47.0),
            fork(0, "free", 99.0, 0.0, 99.0, task=3),
        ],
        "hard",
    )
    assert found == {
        "protected": {"new - grow": -2.0, "old lost - grow": 3.0, "FAA - grow": -2.0, "FAA - free": 3.0},
        "free": {"new - grow": 3.0, "old lost - grow": 8.0, "FAA - grow": -4.0},
    }
    rows = arms.figures([found, {"free": found["free"] | {"new - grow": 5.0}}])
    assert rows["free"]["new - grow"].mean == 4.0
    assert rows["free"]["FAA - free"].mean is None
    assert (rows["protected"]["FAA - free"].mean, rows["protected"]["FAA - free"].clusters) == (3.0, 1)


def test_angles_are_explained_by_nulls_within_a_task(script, tmp_path):
    """What a null explains is taken within each task, and so is the error; blocks have their own Z."""
    angles = script("angles")

    def one(number, hfc, null):
        sites = {"first": {"value": 0.0}, "deep": {"value": hfc - 70.0}}
        parts = {"hfc": hfc, "null_hfc": null, "energy_null_hfc": 7.0 - number * number}
        replicates = [sign * (0.5, 0.1, -0.7)[number] for sign in (1, -1)]
        measured = {"value": hfc - 70, "error": 0.5, "parts": parts, "sites": sites, "replicates": replicates}
        return {"set": number, "measures": {"hindrance": measured}}

    decisions = [
        {"task": 1, "candidates": [one(0, 71.0, 1.0), one(1, 72.0, 2.0)]},
        # another level, the same differences
        {"task": 2, "candidates": [one(0, 81.0, 1.0), one(1, 82.0, 2.0), one(2, 83.0, 3.0)]},
    ]
    config = {"baseline": {"name": "b"}, "policy": {"name": "min"}, "growth": {"energy": 0.9}}
    (tmp_path / "record.json").write_text(json.dumps({"config": config, "seed": 3, "decisions": decisions}))
    found = angles.read(tmp_path)
    name, candidates, by_rank, by_energy, both, spread, left, error, apart = angles.beyond_rank(found)
    assert (name, candidates) == ("b, min, seed 3", 5)
    # errors of differences are .4 in the first task, .4, .8 and 1.2 in the second
    assert error**2 == pytest.approx((2 * 0.4**2 / 4 + 3 * (0.4**2 + 0.8**2 + 1.2**2) / 9) / 5)
    assert apart == 2 / 4
    assert all(np.isnan(angles.told_apart(attrs.evolve(found, replicates=[()] * 5))))
    assert (by_rank, both, left) == pytest.approx((1.0, 1.0, 0.0), abs=1e-9)
    assert 0.5 < by_energy < 1
    assert spread == pytest.approx((2.5 / 5) ** 0.5)
    first, deep = angles.by_block(found)
    assert first[1:3] == ["first", 0.0]
    assert deep[1:4] == ["deep", pytest.approx(7.8), "0"]
    assert angles.beside(found, found)[0] == "b, min, seed 3"
    (tmp_path / "record.json").write_text(json.dumps({"config": config, "seed": 3, "decisions": []}))
    with pytest.raises(SystemExit, match="has no angles"):
        angles.read(tmp_path)


def test_the_value_half_meets_the_attention_paid_to_it(script, finished, catalogue, monkeypatch, capsys):
    """Keys meet what the block's queries are, values shares of attention; every block has both rows."""
    load_instead(monkeypatch, lambda **_: catalogue)
    values, session = script("values"), reopen(finished[0], catalogue)
    (batch, *_), first, block = (
        values.batches(session, 0, 8),
        session.parts.pool.ids[0],
        session.parts.baseline.prefixes.blocks[0],
    )
    keys, shares = values.met(session, batch, session.parts.pool[first], block, 0)
    tap = Tap(block=block, kind="query")
    routing = Routing(sets=(session.parts.pool[first],), chosen=0)
    with torch.no_grad():
        queries = session.parts.backbone.read([tap], lambda: session.parts.baseline.features(batch, routing))[
            tap
        ]
    heads, length = session.parts.backbone.heads, session.parts.pool[first].key.shape[1]
    torch.testing.assert_close(keys.transpose(0, 1).flatten(1), queries.flatten(0, 1))
    assert shares.shape == (heads, keys.shape[1], length)
    assert (shares > 0).all()
    assert (shares.sum(dim=-1) < 1).all()
    monkeypatch.setattr(sys, "argv", ["values.py", str(finished[0]), "--images", "8"])
    values.main()
    rows = [line.split("|") for line in capsys.readouterr().out.splitlines()[2:]]
    blocks = [str(one) for one in session.parts.baseline.prefixes.blocks]
    assert [(row[1].strip(), row[2].strip()) for row in rows] == [
        (one, half) for one in blocks for half in ("keys", "values")
    ]
    assert all(0 < float(row[3]) <= 100 and 0 <= float(row[5]) <= 90 for row in rows)


def test_weakened_weights_pass_on_what_early_blocks_say(script, tmp_path, monkeypatch):
    """Blocks beyond those kept change features by next to nothing, and the file is still accepted."""
    model = timm.create_model("vit_tiny_patch16_224", img_size=32, depth=3, num_classes=0).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.02)
    save_file(model.state_dict(), tmp_path / "whole.safetensors")
    command = ["weaken.py", str(tmp_path / "whole.safetensors"), str(tmp_path / "weak.safetensors")]
    monkeypatch.setattr(sys, "argv", [*command, "--keep", "1"])
    script("weaken").main()
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        first = model.blocks[0](model._pos_embed(model.patch_embed(images)))
        load_weights(model, tmp_path / "weak.safetensors")
        require_loaded(model, "weak")
        found = model.blocks(model._pos_embed(model.patch_embed(images)))
    torch.testing.assert_close(found, first, rtol=1e-4, atol=1e-5)
    assert not torch.equal(found, first)
