"""The commands of the core: what ``lw2g --help`` says of each, and where it is.

The entry-point group ``lw2g.commands`` names this module, as it names those of other packages.
"""

from __future__ import annotations

from lw2g.interfaces.command import INSTALLATION, PHOTOS, STUDIES, Command
from lw2g.registry.markers import hookimpl

__all__ = ["OWN_COMMANDS", "lw2g_commands"]

OWN_COMMANDS = (
    Command(
        name="predict",
        help="Classify image files with a run or a model.",
        target="lw2g.cli.predict_command:predict",
        group=PHOTOS,
        rank=2,
    ),
    Command(
        name="show",
        help="Show what a run reached, or what a model knows.",
        target="lw2g.cli.show_command:show",
        group=PHOTOS,
        rank=5,
    ),
    Command(
        name="export",
        help="Write a run's model into its own folder.",
        target="lw2g.cli.export_command:export",
        group=PHOTOS,
        rank=8,
    ),
    Command(
        name="run",
        help="Run an experiment.",
        target="lw2g.cli.run_command:run",
        group=STUDIES,
        rank=1,
    ),
    Command(
        name="config",
        help="Print the complete configuration of a run command.",
        target="lw2g.cli.run_command:config",
        group=STUDIES,
        rank=8,
    ),
    Command(
        name="resume",
        help="Resume an interrupted run.",
        target="lw2g.cli.resume_command:resume",
        group=STUDIES,
        rank=5,
    ),
    Command(
        name="continue",
        help="Continue a run that stopped after --tasks, or with new classes.",
        target="lw2g.cli.continue_command:continue_run",
        group=STUDIES,
        rank=6,
    ),
    Command(
        name="fork",
        help="Start a run from a task of another run, with other choices.",
        target="lw2g.cli.fork_command:fork",
        group=STUDIES,
        rank=7,
    ),
    Command(
        name="sweep",
        help="Run all cells of a grid and show their status.",
        target="lw2g.cli.sweep_command:sweep",
        group=STUDIES,
        rank=2,
    ),
    Command(
        name="runs",
        help="List the runs below a directory.",
        target="lw2g.cli.runs_command:runs",
        group=STUDIES,
        rank=4,
    ),
    Command(
        name="plugins",
        help="List components by kind, or describe one.",
        target="lw2g.cli.plugins_command:plugins",
        group=INSTALLATION,
    ),
    Command(
        name="new-plugin",
        help="Write a plugin package to start from.",
        target="lw2g.cli.new_plugin_command:new_plugin",
        group=INSTALLATION,
    ),
    Command(
        name="doctor",
        help="Find what is wrong with this installation, and what to do.",
        target="lw2g.cli.doctor_command:doctor",
        group=INSTALLATION,
    ),
    Command(
        name="completion",
        help="Print the completion script of a shell.",
        target="lw2g.cli.completion:completion",
        group=INSTALLATION,
    ),
)


@hookimpl
def lw2g_commands() -> list[Command]:
    """Offer the commands of the core."""
    return list(OWN_COMMANDS)
