"""Checks of trackers: registered ones pass them, broken ones fail the one they break."""

from __future__ import annotations

import os
import random
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from broken_components import Broken, kept
from lw2g.errors import ConfigError
from lw2g.interfaces.component import NoOptions, TrackerComponent
from lw2g.interfaces.tracker import EpochEnded, Event, RunEnded, RunStarted, TaskEvaluated
from lw2g_testing import ContractCase, contract_cases


def tracker(name: str, cls: Any) -> TrackerComponent:
    def made(config: NoOptions, directory: Path) -> Any:
        return cls(directory)

    made.__wrapped__ = cls  # type: ignore[attr-defined]  # the class whose lines messages name
    return TrackerComponent(name=name, config=NoOptions, summary="for tests", build=made)


BROKEN = Broken(tracker)
breaks = BROKEN.breaks


class Sane:
    """Writes one line per event into the run directory: it keeps every promise."""

    def __init__(self, directory: Path) -> None:
        self.lines: list[str] = []
        self.file = directory / "events.txt"

    def on_event(self, event: Event) -> None:
        self.lines.append(type(event).__name__)

    def close(self) -> None:
        with self.file.open("a") as file:
            file.writelines(f"{line}\n" for line in self.lines)
        self.lines = []


@breaks("overrides_what_it_means", r"^on_event \(.*:\d+\) takes \(self\); let it take \(self, event\)$")
class TakesNoEvent(Sane):
    def on_event(self):
        pass


@breaks("takes_a_run_and_changes_nothing", "on_event, on TaskEvaluated.*raises TypeError.*pass over those")
class FormatsAll(Sane):
    def on_event(self, event):
        if isinstance(event, TaskEvaluated):
            self.lines.append(",".join(f"{value:.1f}" for value in event.metrics.values()))


@breaks("takes_a_run_and_changes_nothing", "return an object with on_event")
class Nothing(Sane):
    on_event = None

    def __new__(cls, directory):
        return object()


@breaks("takes_a_run_and_changes_nothing", r"; it has on_events \(.*test_tracker_checks\.py:\d+\)$")
class Misspelt:
    def __init__(self, directory):
        pass

    def on_events(self, event):
        pass

    def close(self):
        pass


@breaks("takes_a_run_and_changes_nothing", "changes the RunStarted it is given.*copy what is to be changed")
class PopsOptions(Sane):
    def on_event(self, event):
        if isinstance(event, RunStarted):
            event.config.pop("baseline")


@breaks("takes_a_run_and_changes_nothing", "global generator of random.*a generator of its own")
class NamesAtRandom(Sane):
    def on_event(self, event):
        self.lines.append(f"{random.random()}")


@breaks("takes_a_run_and_changes_nothing", "close raises ValueError.*perhaps again")
class ClosesOnce(Sane):
    def close(self):
        if self.file is None:
            raise ValueError("it is closed")
        super().close()
        self.file = None


@breaks("takes_an_interrupted_run", "close raises KeyError")
class WantsAnEnd(Sane):
    def __init__(self, directory):
        super().__init__(directory)
        self.ended = {}

    def on_event(self, event):
        if isinstance(event, RunEnded):
            self.ended["metrics"] = event.metrics

    def close(self):
        self.lines.append(str(self.ended["metrics"]))
        super().close()


@breaks("takes_an_interrupted_run", "it raises FileExistsError")
class FreshFolder(Sane):
    def __init__(self, directory):
        (directory / "plots").mkdir()
        super().__init__(directory)


@breaks("says_what_is_missing", "it raises ModuleNotFoundError .*; raise ConfigError")
class Imports(Sane):
    def __init__(self, directory):
        import a_package_that_is_not_there  # noqa: F401


@breaks("says_what_is_missing", "it says 'no server'; say in one line")
class SaysNoRemedy(Sane):
    def __init__(self, directory):
        raise ConfigError("no server")


@pytest.mark.parametrize("case", kept("tracker"), ids=str)
def test_registered_trackers_keep_their_promises(case: ContractCase) -> None:
    """Every registered tracker passes every check, or is skipped where its package is not installed."""
    case.run()


test_broken_ones_fail, test_every_check_is_broken, test_sane_ones_pass = BROKEN.tests("tracker", Sane)


def test_a_tracker_is_checked_away_from_the_users_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """It sees a temporary folder, no service that the environment names, and no network."""
    monkeypatch.setenv("SOME_TRACKING_URI", "http://192.0.2.1")
    before, seen = Path.cwd(), []

    class Curious(Sane):
        def __init__(self, directory: Path) -> None:
            super().__init__(directory)
            seen.append((Path.cwd(), directory, os.environ.get("SOME_TRACKING_URI")))

        def on_event(self, event: Event) -> None:
            if isinstance(event, EpochEnded):
                with pytest.raises(OSError, match="Connection refused"):
                    urllib.request.urlopen("http://192.0.2.1")

    assert {case.result().status for case in contract_cases(tracker("curious", Curious))} == {"passed"}
    for folder, directory, service in seen:
        assert folder != before
        assert directory.parent.name == folder.name
        assert not folder.exists()
        assert service is None
    assert Path.cwd() == before
    assert os.environ["SOME_TRACKING_URI"] == "http://192.0.2.1"
