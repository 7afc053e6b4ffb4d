"""A stranger's metric: recorded by runs, shown by reports, recomputed by ``lw2g verify``; lw2g's own stay."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from click.testing import CliRunner

from lw2g.cli.main import main
from lw2g.config.resolve import Resolved
from lw2g.disk.sealed import seal_json, unseal_json
from lw2g.errors import DataError
from lw2g.interfaces.metric import Metric
from lw2g.lifecycle.ledger import Ledger
from lw2g.lifecycle.runner import start
from lw2g.registry.catalogue import Catalogue, load_catalogue
from lw2g.registry.markers import hookimpl
from lw2g.results.columns import COLUMNS, further_columns
from lw2g.results.verdicts import Verdict
from lw2g.results.verification import verify
from lw2g_testing import tiny_catalogue

WORST = Metric(
    name="worst_task",
    summary="accuracy on the task that has the lowest one",
    needs=("accuracy",),
    compute=lambda accuracy: accuracy[:, -1].min(),
    digits=1,
)


class Stranger:
    """A plugin with metrics."""

    def __init__(self, *metrics: Metric) -> None:
        self.metrics = list(metrics)

    @hookimpl
    def lw2g_metrics(self) -> list[Metric]:
        return self.metrics


@pytest.fixture(scope="module")
def known() -> Catalogue:
    """Everything installed, and the metric."""
    return tiny_catalogue(Stranger(WORST))


@pytest.fixture(scope="module")
def run(
    known: Catalogue, quick: Callable[..., Resolved], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any]]:
    """Directory and record of a run that has the metric."""
    directory = tmp_path_factory.mktemp("metric") / "run"
    return directory, start(quick(), known, directory)


def finding(directory: Path, catalogue: Catalogue) -> Verdict:
    (found,) = [one for one in verify(directory, catalogue) if one.what == "record.json: metrics.worst_task"]
    return found


def test_a_record_holds_the_value_and_what_it_is(run: tuple[Path, dict[str, Any]]) -> None:
    """The value stands beside lw2g's own, and whoever has not the plugin can read what it means."""
    _, record = run
    assert record["metrics"]["worst_task"] == min(row[-1] for row in record["accuracy_matrix"])
    assert record["metric_definitions"] == {
        "worst_task": {"definition": WORST.summary, "unit": "%", "digits": 1, "plugin": "plugin 'Stranger'"}
    }


def test_reports_and_show_have_it_with_and_without_the_plugin(
    run: tuple[Path, dict[str, Any]], known: Catalogue
) -> None:
    """The column is the same; the commands here know nothing of the plugin."""
    directory, record = run
    with_plugin, without = (further_columns([record], one)["worst_task"] for one in (known, load_catalogue()))
    assert with_plugin == without
    assert with_plugin.of(record) == record["metrics"]["worst_task"]
    printed = CliRunner().invoke(main, ["report", str(directory)]).stdout
    assert "worst task" in printed
    assert f"{record['metrics']['worst_task']:.1f}" in printed
    chosen = CliRunner().invoke(main, ["report", str(directory), "--columns", "worst_task"])
    assert chosen.exit_code == 0, chosen.output
    explained = CliRunner().invoke(main, ["show", str(directory), "--explain"]).stdout
    assert "accuracy on the task that has" in explained


def test_verify_recomputes_it_where_the_plugin_is_installed(
    run: tuple[Path, dict[str, Any]], known: Catalogue
) -> None:
    """An edited value does not hold; without the plugin verify says that it could not look."""
    directory, _ = run
    assert finding(directory, known).holds is True
    missing = finding(directory, load_catalogue())
    assert (missing.holds, missing.text) == (None, "not recomputed: plugin 'Stranger' is not installed")
    whole = (directory / "record.json").read_bytes()
    edited = unseal_json(directory / "record.json")
    edited["metrics"]["worst_task"] += 0.01
    (directory / "record.json").write_bytes(seal_json(edited))
    assert finding(directory, known).holds is False
    (directory / "record.json").write_bytes(whole)
    failing = attrs.evolve(WORST, compute=lambda accuracy: {}["x"])
    assert finding(directory, known.with_component(failing)).text == "not recomputed: KeyError: 'x'"


def test_a_metric_that_fails_ends_no_run(
    quick: Callable[..., Resolved], run: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    """Its value is unknown, a warning names plugin and metric, and everything else is as without it."""
    unsound = attrs.evolve(WORST, compute=lambda accuracy: float("nan"))
    failing = attrs.evolve(WORST, name="failing", compute=lambda accuracy: {}["x"])
    record = start(quick(), tiny_catalogue(Stranger(unsound, failing)), tmp_path / "run")
    events = map(json.loads, (tmp_path / "run" / "events.jsonl").read_text().splitlines())
    warned = [event["message"] for event in events if event["event"] == "Warned"]
    assert record["metrics"] == run[1]["metrics"] | {"worst_task": None, "failing": None}
    for name in ("worst_task", "failing"):
        assert any(line.startswith(f"plugin 'Stranger': metric {name!r}: ") for line in warned)


def test_a_name_that_lw2g_has_is_refused() -> None:
    """No plugin changes what a published number is, and a column keeps its name."""
    catalogue = load_catalogue(plugins=[Stranger(attrs.evolve(WORST, name="faa"))])
    (problem,) = [one for one in catalogue.problems if one.plugin == "Stranger"]
    assert problem.what == "registers metric 'faa', a name that lw2g has itself"
    assert "faa" not in catalogue.names("metric")
    told = {"total_s": {"definition": "x", "unit": "", "digits": 0, "plugin": "y"}}
    (column,) = further_columns([{"metric_definitions": told}], catalogue).values()
    assert column.name == "metrics.total_s"
    assert column.name not in COLUMNS


def test_a_metric_names_what_it_needs() -> None:
    """What there is none of is refused where the record is made."""
    with pytest.raises(ValueError, match="needs: 'colour' is none of accuracy, retrieval"):
        Metric(name="x", summary="x", needs=("colour",), compute=lambda colour: 0.0)


def test_a_checkpoint_that_knows_other_numbers_is_refused() -> None:
    """One line says so, instead of an error of Python."""
    with pytest.raises(DataError, match=r"run it anew: lw2g\.run\('RUN/config.toml', out=NEW\)"):
        Ledger.restored({**Ledger().as_mapping(), "others": []})


def test_a_checkpoint_of_the_last_release_goes_on() -> None:
    """One of 0.2.0 knows no calibration, and a run of it has none."""
    kept = {**Ledger().as_mapping(), "images": 7}
    del kept["calibration"]
    ledger = Ledger.restored(kept)
    assert (ledger.images, ledger.calibration) == (7, None)
