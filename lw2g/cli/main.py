"""The entry point: the group of all commands, and how errors end a command.

A mistake of the user or of a plugin, and a refusal of the system (disk full, no permission, no such file, no
memory), end with one message on stderr and exit code 2; a bug keeps its traceback. Nothing here imports
torch: commands import what they need when they run.
"""

from __future__ import annotations

import errno
import logging
import traceback
from typing import Any

import click
from click.exceptions import NoArgsIsHelpError

from lw2g import __version__
from lw2g.cli.completion import completion
from lw2g.cli.continue_command import continue_run
from lw2g.cli.doctor_command import doctor
from lw2g.cli.export_command import export
from lw2g.cli.fork_command import fork
from lw2g.cli.new_plugin_command import new_plugin
from lw2g.cli.plugins_command import plugins
from lw2g.cli.predict_command import predict
from lw2g.cli.resume_command import resume
from lw2g.cli.run_command import config, run
from lw2g.cli.runs_command import runs
from lw2g.cli.show_command import show
from lw2g.cli.signals import unwinding
from lw2g.cli.signature import documented
from lw2g.cli.sweep_command import sweep
from lw2g.errors import ComponentError, Lw2gError, is_out_of_memory, nearest, printable
from lw2g_datasets.data_commands import data
from lw2g_page.report_command import report
from lw2g_photos.learn_commands import learn, start, unlearn
from lw2g_photos.score_command import test
from lw2g_photos.teach_command import teach
from lw2g_store.store_commands import store, submit
from lw2g_store.verify_command import verify
from lw2g_testing.check_command import check

__all__ = ["main"]


_LONGEST = 2_000
_TRACEBACK = "--traceback"
_RUNNING = ("run", "resume", "continue", "fork", "sweep")
"""Commands that leave a run behind which can be resumed."""


class UserError(click.ClickException):
    """A mistake that is reported in one message."""

    def __init__(self, message: str, *, exit_code: int = 2, whole: bool = False) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]  # click reads it of the instance
        self._whole = whole

    def show(self, file: Any = None) -> None:
        """Print the message on stderr, with the traceback if requested."""
        if self._whole and self.__cause__ is not None:
            click.echo("".join(traceback.format_exception(self.__cause__)), err=True)
        lines = (_cut(printable(line)) for line in self.message.splitlines())
        click.echo("error: " + "\n".join(lines), err=True)


def _cut(line: str) -> str:
    """Return a line, without its middle if it is very long."""
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST // 2]} ... {line[-_LONGEST // 2 :]}"


class Commands(click.Group):
    """A group that prints lw2g's own errors without a traceback and suggests the nearest command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Accept ``--traceback`` anywhere on the command line."""
        ctx.meta[_TRACEBACK] = _TRACEBACK in args
        try:
            return super().parse_args(ctx, [argument for argument in args if argument != _TRACEBACK])
        except click.UsageError as error:
            raise _told_in_one_line(error) from error

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        _show_progress()
        try:
            with unwinding():
                return super().invoke(ctx)
        except click.UsageError as error:
            raise _told_in_one_line(error) from error
        except Lw2gError as error:
            with_traceback = bool(ctx.meta.get(_TRACEBACK))
            hint = ""
            if isinstance(error, ComponentError) and not with_traceback:
                hint = "; --traceback shows where"
            raise UserError(f"{error}{hint}", exit_code=error.exit_code, whole=with_traceback) from error
        except OSError as error:
            if error.errno == errno.EPIPE:  # click handles a closed pipe
                raise
            hint = ""
            if ctx.invoked_subcommand in _RUNNING:
                hint = " (`lw2g resume` continues a run that had begun)"
            raise UserError(_refused_by_system(error) + hint) from error
        except (MemoryError, RuntimeError) as error:
            # torch tells of exhausted memory by a RuntimeError, which may be anything else, too
            if not is_out_of_memory(error):
                raise
            # torch names the part that failed before it says why
            first_line = str(error).strip().split("\n")[0]
            reason = first_line.rpartition("Allocator: ")[2] or type(error).__name__
            raise UserError(
                f"out of memory ({reason}); lower baseline.batch_size, run.evaluation_batch or the size of "
                "the baseline's sets, or use a smaller backbone"
            ) from error

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or fail with the nearest name."""
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-") and not ctx.resilient_parsing:
            ctx.fail(f"no command is called {name!r}{nearest(name, self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)


class _OnStderr(logging.Handler):
    """Prints what is logged on stderr, so that results on stdout stay alone."""

    def emit(self, record: logging.LogRecord) -> None:
        click.echo(self.format(record), err=True)


def _show_progress() -> None:
    """Print notes (:mod:`lw2g.ground.notes`) and the progress of long work (:mod:`lw2g.runtime.telling`)."""
    logger = logging.getLogger("lw2g.progress")
    if not logger.handlers:  # in tests one process runs many commands
        logger.addHandler(_OnStderr())
        logger.setLevel(logging.INFO)
        logger.propagate = False


def _told_in_one_line(error: click.UsageError) -> click.ClickException:
    """Return a mistake on the command line without click's lines on usage."""
    if isinstance(error, NoArgsIsHelpError):
        return error  # the help itself, of a group that was called alone
    message = " ".join(error.format_message().split()).rstrip(".")  # choices stand below each other
    for sentence, clause in ((". (Did", " (did"), (". Did", "; did"), (". Choose", "; choose")):
        message = message.replace(sentence, clause)
    message = message[:1].lower() + message[1:]
    # click leaves the command out where its parser finds no value behind an option
    command = "lw2g" if error.ctx is None else error.ctx.command_path
    return UserError(f"{message}; see {command} --help")


_REMEDIES = {
    errno.ENOSPC: "make room, or name a place with more of it",
    errno.EDQUOT: "make room, or name a place with more of it",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f), or name another place",
    errno.EROFS: "name a place where you may write",
    errno.EACCES: "name a place where you have permission",
    errno.EPERM: "name a place where you have permission",
    errno.EISDIR: "name a file",
    errno.ENOTDIR: "a part of the path is a file: name another place",
    errno.EEXIST: "name another place, or remove the existing file",
    errno.EMFILE: "raise the limit on open files (ulimit -n), or lower run.workers",
}


def _refused_by_system(error: OSError) -> str:
    """Return what the system refused, where, and what to do about it."""
    where = f"{str(error.filename)!r}: " if error.filename is not None else ""
    remedy = _REMEDIES.get(error.errno or 0, "check the path and its device")
    return f"{where}{error.strerror or error}; {remedy}"


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="lw2g")
@click.option(_TRACEBACK, is_flag=True, expose_value=False, help="Show where an error arose.")
@documented
def main() -> None:
    """Continual learning on frozen pre-trained ViTs.

    A model of your own photos, in photos/CLASS/:

    \b
      lw2g start photos model --backbone vit-tiny
      lw2g predict model photo.jpg

    A study, in which baseline, growth policy and constraints vary independently:

    \b
      lw2g run --baseline hide-prompt --policy min
      lw2g run --baseline dual-prompt --policy always --benchmark digits
      lw2g plugins
    """


for command in (
    run,
    resume,
    continue_run,
    sweep,
    fork,
    runs,
    report,
    predict,
    test,
    export,
    start,
    learn,
    unlearn,
    teach,
    plugins,
    show,
    verify,
    submit,
    store,
    config,
    new_plugin,
    check,
    data,
    doctor,
    completion,
):
    main.add_command(command)
