"""The functions of lw2g that read what runs have recorded.

Importing this module imports neither torch nor any plugin.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lw2g.api.arguments import backbone_as_typed
from lw2g.api.models import folder_of
from lw2g.config.directory import CONFIG, MANIFEST, RECORD, holds_model, missing_run
from lw2g.config.layers import word_of
from lw2g.config.toml import read_json
from lw2g.disk.checkpoint_files import is_without_record
from lw2g.errors import DataError, as_word
from lw2g.ground.spelling import expands_paths
from lw2g.interfaces.defaults import (
    DEFAULT_BACKBONE,
    DEFAULT_BENCHMARK,
    DEFAULT_FIXED_POLICY,
    FOLDER_BENCHMARK,
    FROZEN_BASELINE,
    METHODS,
    RECOMMENDED,
)
from lw2g.interfaces.metric import CORE_METRICS, DEFINITIONS
from lw2g.maths.choosing import (
    named_candidate,
    words_of_change,
    words_of_choice,
    words_of_choice_in_tasks,
)
from lw2g.pixels.found_images import split_folder
from lw2g.registry.catalogue import LOCAL, Catalogue, load_catalogue
from lw2g.results.leading_check import ClassCheck, LeadingCheck, accuracy_words, leading_check

if TYPE_CHECKING:
    from lw2g.api.tabular import Runs
    from lw2g.model.manifest import Manifest
    from lw2g.results.found_runs import ReportedRun

__all__ = [
    "ClassCheck",
    "LeadingCheck",
    "Recorded",
    "accuracy_words",
    "by_domain",
    "check_of",
    "head_of",
    "head_taken",
    "holds_model",
    "interval_of",
    "is_embedded",
    "leading_check",
    "leaked_images",
    "manifest_of",
    "next_method",
    "next_model",
    "part_of_policy",
    "reached",
    "results_of",
    "runs",
    "spread_of",
    "word_of",
    "words_of_change",
    "words_of_choice",
]

_OF_POLICY = ("constraints.", "growth.", "sites.", "spaces.")
"""How the options begin that a policy and its constraints have where they measure or keep spaces of tasks."""


class Recorded:
    """What a run has recorded.

    Attributes:
        run: What was asked for: a directory, or the file itself.
        path: The file.
        content: What it holds.
    """

    def __init__(self, run: Path, path: Path, content: Mapping[str, Any]) -> None:
        self.run = run
        self.path = path
        self.content = content

    @cached_property
    def grows(self) -> bool:
        """Whether the method has sets that a policy decides on."""
        from lw2g.disk.origins import made_with

        catalogue = load_catalogue(made_with=made_with(self.run), kinds=["baseline"])
        return catalogue.grows(self.content["config"]["baseline"]["name"])

    @cached_property
    def stream_options(self) -> Sequence[str]:
        """What of the stream is otherwise than by default, as in titles of reports: ``["shots 5"]``."""
        from lw2g.config.describe import plain
        from lw2g.disk.origins import made_with
        from lw2g.results.conditions import stream_options
        from lw2g.results.row_names import settings_of

        catalogue = load_catalogue(made_with=made_with(self.run))
        (run,) = _as_reported({self.run: self.content})
        changed = {key: plain(value) for key, value in settings_of(run, catalogue).changed.items()}
        changed.pop("benchmark.stream", None)  # what the tasks consist of is told beside the data
        return stream_options(changed)

    @cached_property
    def is_published(self) -> bool:
        """Whether the method is cited or has a published value, or is another's that is not installed."""
        from lw2g.config.describe import describe_options
        from lw2g.disk.origins import made_with

        catalogue = load_catalogue(made_with=made_with(self.run), kinds=["baseline"])
        name = self.content["config"]["baseline"]["name"]
        entry = catalogue.find("baseline", name)
        if entry is None:
            return not name.startswith(LOCAL)
        options = describe_options(entry.component.config)
        return bool(entry.component.citation) or any(option.published is not None for option in options)

    @cached_property
    def several_codes(self) -> dict[str, list[str]]:
        """By a plugin's distribution the codes of it that have learned the run, where these differ."""
        from lw2g.disk.plugin_code import code_among, is_of_several

        by_name = code_among([self.run]).items()
        return {
            name: [code for had in of_runs for code in had]
            for name, of_runs in by_name
            if is_of_several(of_runs)
        }

    @cached_property
    def method(self) -> str:
        """The name that a row of reports has: components, and what differs from the method's own options."""
        from lw2g.disk.origins import made_with
        from lw2g.results.found_runs import ReportedRun
        from lw2g.results.row_names import is_condition, method_of, settings_of

        config = self.content["config"]
        run = ReportedRun(path=self.run, state="finished", config=config, record=self.content)
        catalogue = load_catalogue(made_with=made_with(self.run))
        settings = settings_of(run, catalogue)
        conditions = [key for key in settings.changed if is_condition(key)]
        return method_of(run, settings, conditions, catalogue)

    @cached_property
    def definitions(self) -> dict[str, str]:
        """What each metric is, those of plugins too."""
        further = self.content.get("metric_definitions", {})
        return {**DEFINITIONS, **{name: entry["definition"] for name, entry in further.items()}}

    @cached_property
    def explained(self) -> dict[str, str]:
        """What each metric and matrix is that the run has."""
        values = dict(self.content["metrics"])
        values["adjusted_rand_index"] = self.content.get("planted_groups")
        values["feature drift"] = self.content.get("feature_drift")
        lacking = {name for name in CORE_METRICS if name not in values}
        lacking |= {name for name, value in values.items() if value is None}
        return {name: text for name, text in self.definitions.items() if name not in lacking}

    @cached_property
    def decided_by_ranks(self) -> list[int]:
        """The tasks whose decision counts directions: it follows from the ranks of spaces alone."""
        from lw2g.interfaces.growth import counts_directions

        decisions = self.content["decisions"] if self.grows else ()
        return [decision["task"] for decision in decisions if counts_directions(decision)]

    @cached_property
    def unfinished(self) -> str:
        """How far a run is that has not learned its whole stream, in a line; empty for a finished one."""
        from lw2g.results.found_runs import unfinished_in_words

        told = unfinished_in_words(self.run, self.content)
        return f"unfinished: {told}" if told and not told.startswith("running") else told

    def require_whole_answers(self) -> None:
        """Refuse predictions that are not those that the record lists; it may have none beside it.

        Raises:
            DataError: They are others, or some are missing.
        """
        from lw2g.results.found_runs import ReportedRun
        from lw2g.results.right_answers import require_whole_answers

        require_whole_answers(ReportedRun(path=self.run, state="finished", record=self.content))

    def differences(
        self, decision: Mapping[str, Any]
    ) -> Mapping[tuple[int, str], tuple[int, float, float | None]]:
        """Return by set and measure how far a decision's values are from those of a reference set.

        It is the reused set or, if that was not measured or the pool grew, the one of lowest value.

        Args:
            decision: One of the record's decisions.

        Returns:
            The reference, the difference, and its standard error.
        """
        from lw2g.results.recorded_evidence import apart

        return apart(dict(decision))


def interval_of(records: Mapping[Path, Mapping[str, Any]]) -> str:
    """Return the interval of a final accuracy, to stand behind it; nothing without predictions.

    Args:
        records: The record of a run by its directory, or those of several seeds and class orders.

    Raises:
        DataError: The predictions of a run are not those that its record lists.
    """
    from lw2g.results.difference_words import few_of_draws, over_in_words
    from lw2g.results.right_answers import (
        may_answer_alike,
        require_whole_answers,
        right_answers_of,
        shared_answers,
    )
    from lw2g.results.row_means import interval_over
    from lw2g.results.run_draws import draw_of, varied_in_words

    of_runs = _as_reported(records)
    answers = {}
    for run in of_runs:
        require_whole_answers(run)
        if found := right_answers_of(run):
            answers[draw_of(run)] = found
    if len(answers) < len(of_runs):
        return ""
    shared = shared_answers(list(answers.values())) if may_answer_alike(of_runs) else None
    interval = interval_over(answers, shared)
    if interval is None:
        return ""
    same = ""
    over = "images of this one order"
    if len(answers) > 1 and interval.alike:
        same = f", the same with each of {varied_in_words(answers, averaged=False)}"
        over = "images"
    elif len(answers) > 1:
        over = over_in_words(answers)
    few = "" if interval.alike else few_of_draws(answers)
    doubt = f" ({few})" if few else interval.doubt
    return f"{same}; 95 % interval {interval} over {over}{doubt}"


def _as_reported(records: Mapping[Path, Mapping[str, Any]]) -> list[ReportedRun]:
    """Return finished runs as reports take them, from their records by directory."""
    from lw2g.results.found_runs import ReportedRun

    return [
        ReportedRun(path=run, state="finished", config=record["config"], record=record)
        for run, record in records.items()
    ]


def leaked_images(records: Iterable[Mapping[str, Any]]) -> str:
    """Return that some test images of runs were trained on; nothing where none is, or nobody can tell."""
    from lw2g.results.row_notes import leaked_images as in_words

    return in_words(records)


def head_taken(record: Mapping[str, Any]) -> str:
    """Return in a line which head a run has taken where it chose one, and what it tried; else nothing."""
    choice = record.get("findings", {}).get("choice")
    return words_of_choice_in_tasks(choice) if choice else ""


def head_of(manifest: Manifest) -> str:
    """Return the head of a model and the layers that it reads; of one that chooses, what it has taken.

    It is empty where the method takes no head.
    """
    named = manifest.baseline.options.get("head")
    if named is None:
        return ""
    if manifest.choice:
        return f"{named}: {named_candidate(manifest.choice)}"
    return named_candidate({"head": named, "layers": manifest.fingerprint.layers})


def check_of(manifest: Manifest) -> LeadingCheck | None:
    """Return what the last step says of the model as it is; None where there was no step or no check."""
    steps = manifest.history.steps
    if not steps:
        return None
    return leading_check(steps[-1].checks, has_old_classes=len(manifest.tasks) > 1)


def next_method(record: Mapping[str, Any]) -> str:
    """Return the option that stands for the method to try next, after a first run on embedded data."""
    if not is_embedded(record) or record["config"]["baseline"]["name"] == RECOMMENDED["baseline"]:
        return ""
    (word,) = (word for word, method in METHODS.items() if method is RECOMMENDED)
    return f"--{word}"


def is_embedded(record: Mapping[str, Any]) -> bool:
    """Whether a run is on the embedded data and backbone, with which one begins."""
    config = record["config"]
    names = (config["benchmark"]["name"], config["backbone"]["name"])
    return names == (DEFAULT_BENCHMARK, DEFAULT_BACKBONE)


def next_model(record: Mapping[str, Any], run: Path) -> str:
    """Return what makes a model of a run on photographs, with the command; empty of other images.

    A run that trained nothing on one folder leads to what `lw2g start` makes of all its photographs.
    """
    config = record["config"]
    benchmark, backbone = config["benchmark"], config["backbone"]
    if benchmark["name"] != FOLDER_BENCHMARK or backbone["name"].startswith(LOCAL):
        return ""
    is_one_folder = (
        benchmark.get("stream") == "classes"
        and not (benchmark.get("boxes") or benchmark.get("more_roots"))
        and len(record.get("sources", ())) <= 1  # those of an earlier lw2g had one
    )
    if config["baseline"]["name"] != FROZEN_BASELINE or not is_one_folder:
        return f"the model of this run: lw2g export {as_word(run)} MODEL, then lw2g predict MODEL PHOTO"
    root = Path(benchmark["root"])
    folder = root if benchmark.get("test_share") else split_folder(root, "train")
    return f"a model of these photos: lw2g start {as_word(folder)} MODEL {backbone_as_typed(backbone)}"


@expands_paths
def manifest_of(model: str | Path) -> Manifest | None:
    """Return what the model in a folder is made of and has learned; None where the folder holds no model.

    Args:
        model: The folder, or ``hf://OWNER/NAME``.

    Raises:
        DataError: It holds a model that is damaged, or the hub does not give it.
    """
    folder = folder_of(model)
    if not (folder / MANIFEST).is_file():
        return None
    from lw2g.model.exported import read_export

    return read_export(folder).manifest


@expands_paths
def results_of(run: str | Path) -> Recorded:
    """Return what a run has recorded.

    Args:
        run: The directory, or a record alone.

    Raises:
        DataError: There is no run, it has finished no task, or its record is damaged.
    """
    from lw2g.disk import contents

    run = Path(run)
    if run.is_file():
        if run.name != RECORD and not _is_json(run):  # of a record it would be damage
            raise DataError(f"{str(run)!r} is no record of a run", "give a run's or a model's folder")
        return Recorded(run, run, contents.read_sealed(run, contents.Record))
    if (run / RECORD).exists():
        return Recorded(run, run / RECORD, contents.read_record(run))
    if (run / CONFIG).exists():
        from lw2g.results.found_runs import read_run

        if is_without_record(run):
            raise DataError(
                f"{RECORD} of the run {str(run)!r} is missing", f"write it anew: lw2g resume {as_word(run)}"
            )
        found = read_run(run)
        if found is not None and found.state == "running":
            raise DataError(f"the run {str(run)!r} has finished no task yet", f"it is {found.under_way}")
        raise DataError(
            f"the run {str(run)!r} has finished no task yet", f"resume it: lw2g resume {as_word(run)}"
        )
    raise missing_run(run)


def _is_json(file: Path) -> bool:
    """Whether a file can be read, and is JSON."""
    try:
        read_json(file)
    except DataError:
        return False
    return True


def reached(records: Mapping[Path, Mapping[str, Any]]) -> dict[str, str]:
    """Return the defined metrics of a run, or of runs of one configuration, as they are printed.

    Of several runs these are mean and deviation as ``lw2g report`` prints them: over class orders, or over
    the seeds of one.

    Args:
        records: The records by directory.
    """
    from lw2g.results.columns import COLUMNS
    from lw2g.results.row_means import over_draws, printed
    from lw2g.results.run_draws import draw_of

    runs = _as_reported(records)
    draws = [draw_of(run) for run in runs]
    found = {}
    for name in runs[0].record["metrics"]:
        over = over_draws(draws, [run.metric(name) for run in runs])
        if over.mean is None:
            continue
        digits = 1 if len(runs) == 1 or name not in COLUMNS else COLUMNS[name].digits
        value, std = printed(over, digits)
        if name == "ssp" and not std:  # equal counts stay whole
            value = f"{over.mean:.0f}"
        found[name] = f"{value} ± {std}" if std else value
    return found


def by_domain(records: Sequence[Mapping[str, Any]]) -> str:
    """Return the accuracy of the final model on each domain, in a line; empty for fewer than two domains."""
    from lw2g.results.row_notes import by_domain as in_words

    return in_words(records)


def part_of_policy(record: Mapping[str, Any]) -> str:
    """Return how many of the differences from what is published are those of a policy that measures tasks.

    It is empty where there is none.
    """
    policy = record["config"]["policy"]["name"]
    count = sum(entry["option"].startswith(_OF_POLICY) for entry in record["deviations"])
    if not count or policy == DEFAULT_FIXED_POLICY:
        return ""
    verb = "is" if count == 1 else "are"
    return f", of which {count} {verb} of policy {policy} and its constraints"


def spread_of(records: Mapping[Path, Mapping[str, Any]], catalogue: Catalogue) -> str:
    """Return what the deviations of several runs of one experiment are over.

    Args:
        records: The record of each run by its directory.
        catalogue: The components.
    """
    from lw2g.results.row_names import drawn_images
    from lw2g.results.run_draws import draw_of, spread_in_words

    of_runs = _as_reported(records)
    return spread_in_words(set(map(draw_of, of_runs)), drawn_images(of_runs[0], catalogue))


@expands_paths
def runs(directory: str | Path = "runs") -> Runs:
    """List the runs in and below a directory, from their records alone, damaged ones included.

    Args:
        directory: The directory.

    Raises:
        DataError: There is no such directory.
    """
    from lw2g.api.tabular import Runs
    from lw2g.results.found_runs import find_runs

    return Runs(list(find_runs([Path(directory)], damaged=True)))
