"""``lw2g check`` runs the contract kit, prints what it finds and ends with the right code."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
import numpy as np
import pytest
from attrs.validators import ge
from click.testing import CliRunner, Result
from rich.console import Console

from lw2g.cli.main import main
from lw2g.errors import ConfigError
from lw2g.interfaces.component import BaselineComponent, PolicyComponent, TrackerComponent
from lw2g.interfaces.growth import Decision, Evidence, Grow, Reuse
from lw2g.interfaces.options import option
from lw2g.registry.catalogue import load_catalogue
from lw2g.registry.markers import hookimpl
from lw2g_testing.cases import CheckResult
from lw2g_testing.check_command import _print


@attrs.frozen(kw_only=True)
class Options:
    margin: float = option(0.0, "standard errors", validator=ge(0.0))


class Grows:
    margin = 0.0
    burden = None

    def decide(self, evidence: Evidence, rng: np.random.Generator) -> Decision:
        return Grow()


class ReusesNothing(Grows):
    def decide(self, evidence: Evidence, rng: np.random.Generator) -> Decision:
        return Reuse(-1)


class Noisy:
    def on_event(self, event: Any) -> None:
        raise ZeroDivisionError("a bug")

    def close(self) -> None:
        pass


class Quiet(Noisy):
    def on_event(self, event: Any) -> None:
        pass


def policy(name: str, build: Any) -> PolicyComponent:
    return PolicyComponent(
        name=name,
        config=Options,
        summary=f"summary of {name}",
        build=build,
        measures=(),
        default_constraints=(),
    )


def needy(config: Options) -> Any:
    if config.margin == 0:
        raise ConfigError("policy.margin: 0 cannot be used", "set it")
    made = Grows()
    made.margin = config.margin
    return made


POLICIES = [
    policy("grows", lambda config: Grows()),
    policy("wrong", lambda config: ReusesNothing()),
    policy("needy", needy),
    policy("noisy", lambda config: Grows()),
    policy("crashes", lambda config: Crashes()),
]
TRACKERS = [
    TrackerComponent(name="noisy", config=Options, summary="fails", build=lambda config, directory: Noisy())
]
QUIET = TrackerComponent(name="quiet", config=Options, summary="", build=lambda config, directory: Quiet())
LOST = BaselineComponent(
    name="lost",
    config=Options,
    summary="its retrieval is nobody's",
    build=lambda config, context: Noisy(),
    retrieval="centroid",
)


@pytest.fixture(autouse=True)
def few_components(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the command see a few components alone, and a plugin that cannot be used."""
    good, bad, partly = ModuleType("good"), ModuleType("bad"), ModuleType("partly")
    good.lw2g_policies = hookimpl(lambda: POLICIES)
    good.lw2g_baselines = hookimpl(lambda: [LOST])
    good.lw2g_trackers = hookimpl(lambda: TRACKERS)
    bad.lw2g_policy = hookimpl(lambda: [])
    partly.lw2g_trackers = hookimpl(lambda: [QUIET, attrs.evolve(QUIET, name="untold", summary=None)])
    loaded = load_catalogue(plugins=[good, bad, partly], entry_points=False)
    monkeypatch.setattr("lw2g_testing.tiny_catalogue", lambda: loaded)
    monkeypatch.setattr("lw2g_testing.load_catalogue", lambda: loaded, raising=False)


def invoke(*arguments: str) -> Result:
    """Run the command line."""
    return CliRunner().invoke(main, ["check", *arguments])


def found(*arguments: str) -> list[dict[str, Any]]:
    """Return what the command prints in JSON."""
    results: list[dict[str, Any]] = json.loads(invoke(*arguments, "--json").stdout)
    return results


def test_a_component_that_keeps_all_promises_ends_with_0() -> None:
    """Each check is one line with mark, time, name and promise, and the last line counts."""
    result = invoke("grows")
    lines = result.stdout.splitlines()
    assert result.exit_code == 0
    assert lines[0] == "policy grows"
    words = lines[3].split()
    assert (words[0], words[2], words[3]) == ("pass", "s", "decides_on_any_evidence")
    assert "On any legal evidence" in lines[3]
    assert lines[-1].startswith("5 passed, 0 failed, 0 skipped: 1 component in ")


@pytest.mark.parametrize(
    ("device", "says", "remedy"),
    [
        ("tpu", "is no device", "use auto, cpu, cuda, cuda:N or mps"),
        ("cuda:99", "cannot be used", "try --device cpu"),
    ],
)
def test_a_device_that_is_not_there_is_no_fault_of_components(device: str, says: str, remedy: str) -> None:
    """It is one line with the way out, and nothing is checked."""
    result = invoke("grows", "--device", device)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"--device: {device!r} {says}" in result.stderr
    assert remedy in result.stderr


def test_a_broken_promise_ends_with_1_and_what_to_do() -> None:
    """A failure is marked, with the remedy below it, and named again at the end."""
    result = invoke("wrong")
    lines = [line.strip() for line in result.stdout.splitlines()]
    assert result.exit_code == 1
    at = next(number for number, line in enumerate(lines) if line.startswith("FAIL"))
    assert "decides_on_any_evidence" in lines[at]
    assert lines[at + 1].startswith("-> decide reuses set -1 on task 0 [no set]; return the set attribute")
    assert lines[-1] == "failed: policy wrong: decides_on_any_evidence"


def test_an_error_of_the_component_is_one_failure_among_others() -> None:
    """A bug in a stranger's code is reported, and the other checks go on."""
    results = found("noisy", "--kind", "tracker")
    statuses = {one["check"]: one["status"] for one in results}
    assert statuses["takes_a_run_and_changes_nothing"] == "failed"
    assert statuses["says_what_is_missing"] == "passed"
    assert any("raises ZeroDivisionError: a bug (" in one["message"] for one in results)


def test_a_reason_of_several_failures_stands_once() -> None:
    """The next failure of the component for the same reason is told as above; another component's is not."""
    one = CheckResult(
        kind="policy", component="a", check="c", promise="p", status="failed", message="m", seconds=0.0
    )
    out = Console(file=io.StringIO(), width=80)
    shown: set[tuple[str, ...]] = set()
    for result in (one, one, attrs.evolve(one, component="b")):
        _print(out, result, shown)
    told = [line.strip() for line in out.file.getvalue().splitlines() if "->" in line]
    assert told == ["-> m", "-> as above", "-> m"]


def test_what_is_not_here_is_skipped_with_one_reason() -> None:
    """Skipped checks do not fail the command, and their common reason stands once."""
    result = invoke("needy")
    assert result.exit_code == 0
    assert result.stdout.count("-> it cannot be had here: policy.margin: 0 cannot be used; set it") == 1
    assert "2 passed, 0 failed, 3 skipped" in result.stdout


def test_what_cannot_be_built_is_told_once_and_alone() -> None:
    """The cause stands below one failed check, with the plugin at fault, and nothing is skipped."""
    result = invoke("lost")
    assert result.exit_code == 1
    told = " ".join(result.stdout.split())
    says = "cannot be built: plugin 'good': baseline 'lost' names the retrieval 'centroid'; there are "
    assert told.count(f"-> {says}") == 1
    assert told.count("cannot be built") == 1  # the last line has names alone
    assert re.search("1 passed, 1 failed, 0 skipped, [0-9]+ not tried, as they would meet the error", told)


class Crashes(Grows):
    def decide(self, evidence: Evidence, rng: np.random.Generator) -> Decision:
        return self.margn  # type: ignore[attr-defined]


def test_an_error_is_told_by_the_author_s_own_line() -> None:
    """With file, number and text of the line, once, below the check."""
    result = invoke("crashes")
    code = Path(__file__).read_text(encoding="utf-8").splitlines()
    line = next(number for number, text in enumerate(code, 1) if "return self.margn " in text)
    own = f"{Path(__file__).name}:{line}, in decide: return self.margn  # type"
    told = "".join(result.stdout.split())  # a terminal breaks the line anywhere
    assert told.count(own.replace(" ", "")) == 1
    assert told.count("hasnoattribute'margn'") == 1
    assert "Traceback" not in result.stdout
    assert "Traceback" in invoke("crashes", "--traceback").stdout


def test_options_reach_the_component() -> None:
    """--set gives an option its declared type."""
    results = found("needy", "--set", "margin=2")
    assert {one["status"] for one in results} == {"passed"}


def test_json_is_a_list_of_results() -> None:
    """Nothing else is printed, and every result has the promised keys."""
    results = found("grows")
    assert [one["check"] for one in results][1:3] == ["names_what_exists", "decides_on_any_evidence"]
    assert set(results[0]) == {
        "kind",
        "component",
        "check",
        "promise",
        "status",
        "message",
        "seconds",
    }


def test_several_names_and_all_kinds_of_a_name() -> None:
    """Names are checked in turn; a name of two kinds means both unless --kind says which."""
    both = {(one["kind"], one["component"]) for one in found("noisy", "grows")}
    assert both == {("policy", "noisy"), ("tracker", "noisy"), ("policy", "grows")}
    assert {one["kind"] for one in found("noisy", "--kind", "policy")} == {"policy"}


def test_all_checks_everything_of_a_kind() -> None:
    """--all takes every component, or those of one kind."""
    everything = {(one["kind"], one["component"]) for one in found("--all")}
    assert everything == {(one.kind, one.name) for one in (*POLICIES, *TRACKERS, QUIET, LOST)}
    assert {one["component"] for one in found("--all", "--kind", "tracker")} == {"noisy", "quiet"}
    assert invoke("--all").exit_code == 1


def test_problems_with_plugins_are_mentioned() -> None:
    """What could not be loaded is not passed over in silence."""
    result = invoke("grows")
    assert result.exit_code == 0
    assert result.stderr == "note: problems with other plugins: 2; see `lw2g doctor`\n"


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_problem_with_the_checked_plugin_is_told_and_fails(options: tuple[str, ...]) -> None:
    """Its components may keep all promises: what `lw2g doctor` says of the plugin is said here, too."""
    result = invoke("quiet", *options)
    assert "FAIL" not in result.stdout
    assert options or ", 1 problem: 1 component" in result.stdout
    assert result.exit_code == 1
    problem, note = result.stderr.splitlines()
    what = "plugin 'partly' registers tracker 'untold' with a summary that is no text: None"
    assert problem == f"problem: {what}; fix it"
    assert note == "note: problems with other plugins: 1; see `lw2g doctor`"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing to check; give names (`lw2g plugins` lists them) or --all"),
        (["--all", "grows"], "--all and names exclude each other; leave one out"),
        (["--all", "--kind", "retrieval"], "no retrieval is registered; `lw2g doctor` says why"),
        (
            ["grow"],
            "no component is called 'grow' (did you mean 'grows'?); `lw2g plugins` says what there is",
        ),
        (["lose"], "no component is called 'lose'; `lw2g plugins` says what there is"),
        (["grows", "--kind", "tracker"], "no tracker is called 'grows'; `lw2g plugins tracker` lists all"),
        (["needy", "--set", "margn=2"], "policy 'needy': margn: no such option (did you mean 'margin'?)"),
        (["needy", "--set", "policy.margin=-1"], "policy 'needy': margin: must be >= 0.0"),
        (["needy", "--set", "margin=-1"], "policy 'needy': margin: must be >= 0.0"),
        (["needy", "--set", "margin"], "--set: expected KEY=VALUE but got 'margin'"),
        (["noisy", "--set", "margin=1"], "--set is for one component, not for policy noisy, tracker noisy"),
    ],
)
def test_mistakes_end_with_2_and_one_line(arguments: list[str], message: str) -> None:
    """A mistake of the user is told on stderr, without a traceback and before any check."""
    result = invoke(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert message in line


def test_a_terminal_shows_what_is_being_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where somebody watches, the check under way is named while it runs."""
    screen = Console(file=io.StringIO(), force_terminal=True, width=120)
    monkeypatch.setattr("lw2g_testing.check_command.console", lambda: screen)
    seen: list[str] = []
    monkeypatch.setattr("rich.status.Status.update", lambda self, text: seen.append(text))
    assert invoke("grows").exit_code == 0
    assert seen[0] == "1/5  policy grows: overrides_what_it_means"
    assert seen[-1].startswith("5/5  policy grows: ")
