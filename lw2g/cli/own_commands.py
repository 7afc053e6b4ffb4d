"""The commands of lw2g itself: what ``lw2g --help`` says of each, and where it is.

The entry-point group ``lw2g.commands`` names this module, as it names those of other packages.
"""

from __future__ import annotations

from lw2g.interfaces.command import Command
from lw2g.registry.markers import hookimpl

__all__ = ["COMMANDS", "GROUPS", "lw2g_commands"]

GROUPS = ("Models of photos", "Studies", "Results for others", "Components, data and installation")
"""The headings in the order of ``lw2g --help``; those of other packages follow."""
_PHOTOS, _STUDIES, _RESULTS, _REST = GROUPS

COMMANDS = (
    Command(
        name="start",
        help="Make a first model from a folder of images, without a run.",
        target="lw2g_photos.learn_commands:start",
        group=_PHOTOS,
    ),
    Command(
        name="learn",
        help="Let a model learn new classes, or more images of known ones.",
        target="lw2g_photos.learn_commands:learn",
        group=_PHOTOS,
    ),
    Command(
        name="unlearn",
        help="Take a class or the last step of learning back.",
        target="lw2g_photos.learn_commands:unlearn",
        group=_PHOTOS,
    ),
    Command(
        name="teach",
        help="Teach a model from a page in the browser.",
        target="lw2g_photos.teach_command:teach",
        group=_PHOTOS,
    ),
    Command(
        name="predict",
        help="Classify image files with a run or a model.",
        target="lw2g.cli.predict_command:predict",
        group=_PHOTOS,
    ),
    Command(
        name="test",
        help="Test a run or a model on class folders.",
        target="lw2g_photos.score_command:test",
        group=_PHOTOS,
    ),
    Command(
        name="show",
        help="Show what a run reached, or what a model knows.",
        target="lw2g.cli.show_command:show",
        group=_PHOTOS,
    ),
    Command(
        name="export",
        help="Write a run's model into its own folder.",
        target="lw2g.cli.export_command:export",
        group=_PHOTOS,
    ),
    Command(name="run", help="Run an experiment.", target="lw2g.cli.run_command:run", group=_STUDIES),
    Command(
        name="config",
        help="Print the complete configuration of a run command.",
        target="lw2g.cli.run_command:config",
        group=_STUDIES,
    ),
    Command(
        name="resume",
        help="Resume an interrupted run.",
        target="lw2g.cli.resume_command:resume",
        group=_STUDIES,
    ),
    Command(
        name="continue",
        help="Continue a run that stopped after --tasks, or with new classes.",
        target="lw2g.cli.continue_command:continue_run",
        group=_STUDIES,
    ),
    Command(
        name="fork",
        help="Start a run from a task of another run, with other choices.",
        target="lw2g.cli.fork_command:fork",
        group=_STUDIES,
    ),
    Command(
        name="sweep",
        help="Run all cells of a grid and show their status.",
        target="lw2g.cli.sweep_command:sweep",
        group=_STUDIES,
    ),
    Command(
        name="runs",
        help="List the runs below a directory.",
        target="lw2g.cli.runs_command:runs",
        group=_STUDIES,
    ),
    Command(
        name="report",
        help="Print tables of runs, with published values beside ours.",
        target="lw2g_page.report_command:report",
        group=_STUDIES,
    ),
    Command(
        name="verify",
        help="Check all files of a run and recompute its metrics.",
        target="lw2g_store.verify_command:verify",
        group=_RESULTS,
    ),
    Command(
        name="submit",
        help="Pack a run for a store of results; uploads nothing.",
        target="lw2g_store.store_commands:submit",
        group=_RESULTS,
    ),
    Command(
        name="store",
        help="Make and check a store of results.",
        target="lw2g_store.store_commands:store",
        group=_RESULTS,
    ),
    Command(
        name="plugins",
        help="List all components, or describe one.",
        target="lw2g.cli.plugins_command:plugins",
        group=_REST,
    ),
    Command(
        name="new-plugin",
        help="Write a plugin package to start from.",
        target="lw2g.cli.new_plugin_command:new_plugin",
        group=_REST,
    ),
    Command(
        name="check",
        help="Check that components keep the promises the framework relies on.",
        target="lw2g_testing.check_command:check",
        group=_REST,
    ),
    Command(
        name="data",
        help="List, fetch and check data sets; store features.",
        target="lw2g_datasets.data_commands:data",
        group=_REST,
    ),
    Command(
        name="doctor",
        help="Find what is wrong with this installation, and what to do.",
        target="lw2g.cli.doctor_command:doctor",
        group=_REST,
    ),
    Command(
        name="completion",
        help="Print the completion script of a shell.",
        target="lw2g.cli.completion:completion",
        group=_REST,
    ),
)


@hookimpl
def lw2g_commands() -> list[Command]:
    """Offer the commands of lw2g itself."""
    return list(COMMANDS)
