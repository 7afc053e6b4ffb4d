"""A run and an export name their plugins; whatever opens them imports these."""

from __future__ import annotations

import json
import shutil

import pytest

import lw2g
from lw2g.disk.origins import made_with, noted_origins
from lw2g.disk.sealed import seal_json
from lw2g.errors import ConfigError
from lw2g.registry import manager
from lw2g.results.verification import verify
from lw2g_photos.photographs import teach
from lw2g_store.stores import submit
from strangers import install, offering

STRANGER = offering("[record('cautious')]")
QUICK = {
    "baseline": "dual-prompt",
    "benchmark": "digits",
    "progress": False,
    "baseline.epochs": 1,
    "baseline.blocks": [2],
    "benchmark.increment": 5,
    "benchmark.shots": 4,
    "device": "cpu",
    "precision": "32-true",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder on the path with a stranger's policy."""
    folder = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        install(folder, "mine-dist", "mine", STRANGER)
        yield folder


@pytest.fixture(scope="module")
def whole(site, tmp_path_factory):
    """A run under the stranger's policy that stopped after its first task."""
    out = tmp_path_factory.mktemp("runs") / "whole"
    lw2g.run(**QUICK, policy="cautious", tasks=1, out=out)
    return out


@pytest.fixture
def run(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "run")


@pytest.fixture
def imported(monkeypatch):
    """The names of the plugins that are loaded from now on."""
    names = []
    load = manager._load

    def noted(loaded, entry_point):
        names.append(entry_point.name)
        load(loaded, entry_point)

    monkeypatch.setattr(manager, "_load", noted)
    return names


OWN = {"backbones", "benchmarks", "carries", "constraints", "mine", "prompts", "retrieval"}
"""The plugins of the run; the policy brings no measure and no constraint."""


def test_a_run_names_the_plugins_of_what_it_uses(run):
    """With distribution and version, and a policy of a stranger like any other."""
    origins = made_with(run)
    assert str(origins["policy", "cautious"]) == "plugin 'mine' (mine-dist 1.0)"
    assert origins["baseline", "dual-prompt"].first_party
    config = json.loads((run / "record.json").read_text())["config"]
    for kind in ("baseline", "retrieval", "policy", "benchmark", "backbone"):
        assert (kind, config[kind]["name"]) in origins


def test_what_opens_a_run_imports_its_plugins_alone(run, imported, tmp_path):
    """A model needs fewer than a run that goes on, and an export of it knows them, too."""
    lw2g.load(run)
    assert set(imported) <= OWN - {"mine", "benchmarks"}
    assert {"prompts", "backbones"} <= set(imported)
    lw2g.export(run, tmp_path / "export")
    imported.clear()
    lw2g.load(tmp_path / "export")
    assert set(imported) <= OWN - {"mine", "benchmarks"}
    imported.clear()
    assert lw2g.resume(run, progress=False).path == run
    assert "mine" in imported
    assert set(imported) <= OWN


def test_what_packs_a_run_or_teaches_a_model_imports_its_plugins_alone(run, imported, tmp_path):
    """To be packed, a run needs its policy's distribution; a trained head is refused by its own plugins."""
    lw2g.continue_run(run, progress=False)
    imported.clear()
    pack, _ = submit(run, out=tmp_path, who="somebody", licence="CC0-1.0", tuned_on="nothing", runs=1)
    assert json.loads((pack.path / "submission.json").read_text())["components"]["policy cautious"] == (
        "mine-dist 1.0"
    )
    assert "mine" in imported
    assert set(imported) <= OWN
    lw2g.export(run, tmp_path / "export")
    imported.clear()
    with pytest.raises(ConfigError, match="head"):
        teach(tmp_path / "export")
    assert "prompts" in imported
    assert set(imported) <= OWN - {"mine"}


def test_a_broken_plugin_that_a_run_does_not_use_does_not_disturb_it(run, site, imported, tmp_path):
    """It is not imported, and neither is one that has since registered the name of the run's policy."""
    install(site, "bad-dist", "bad", "raise SystemExit('never imported')")
    install(site, "rival-dist", "rival", STRANGER)
    try:
        record = lw2g.continue_run(run, progress=False)
        assert record["task_to_set"] == [0, 1]
        assert lw2g.fork(run, 1, out=tmp_path / "fork", progress=False)["task_to_set"] == [0, 1]
        assert all(verdict.holds for verdict in verify(run))
        assert not {"bad", "rival"} & set(imported)
        assert made_with(tmp_path / "fork") == made_with(run)
    finally:
        for distribution in ("bad_dist", "rival_dist"):
            shutil.rmtree(site / f"{distribution}-1.0.dist-info")


def test_a_run_that_goes_on_under_other_code_warns(run, site):
    """Of the plugin of its policy; the record is as it would be, and the run notes both."""
    module = site / "mine_dist.py"
    before = module.read_text()
    module.write_text(f"{before}# changed")
    try:
        lw2g.continue_run(run, progress=False)
    finally:
        module.write_text(before)
    told = "mine-dist 1.0: other code then; the tasks of this run are learned by both"
    assert told in (run / "events.jsonl").read_text()
    assert len(noted_origins(run).code["mine-dist"]) == 2
    assert all(verdict.holds for verdict in verify(run))


def test_a_fork_to_what_the_run_lacks_finds_it_among_all_plugins(run, imported, tmp_path):
    """And names the plugin of its own policy in turn."""
    fork = tmp_path / "fork"
    lw2g.fork(run, 1, policy="one", out=fork, progress=False)
    assert "growth" in imported
    assert made_with(fork)["policy", "one"].plugin == "growth"
    assert ("policy", "cautious") not in made_with(fork)


@pytest.mark.parametrize("content", [None, b"", b"{}", b'{"components": 3}', seal_json({"components": [3]})])
def test_a_run_that_names_no_plugins_opens_with_all(run, imported, content):
    """As one of an older lw2g, and as one whose file is damaged: all that is lost is what it spares."""
    path = run / "plugins.json"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    assert noted_origins(run).components == []
    assert lw2g.resume(run, progress=False)["task_to_set"] == [0]
    assert {"mine", "growth"} <= set(imported)


def test_a_plugin_that_is_gone_is_told_with_what_to_install(run, site, tmp_path):
    """Whoever goes on needs it; a model answers without the policy of its run."""
    info = site / "mine_dist-1.0.dist-info"
    gone = info.rename(tmp_path / "gone")
    try:
        with pytest.raises(ConfigError) as caught:
            lw2g.resume(run, progress=False)
        told = "policy: policy 'cautious' of plugin 'mine' (mine-dist 1.0) is not installed"
        assert str(caught.value) == f"{told}; install mine-dist 1.0"
        assert lw2g.load(run).classes == ("0", "1", "2", "3", "4")
    finally:
        gone.rename(info)
