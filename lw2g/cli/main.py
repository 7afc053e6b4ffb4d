"""The entry point: the group of all commands, and how errors end a command.

A mistake of the user or of a plugin, and a refusal of the system (disk full, no permission, no such file, no
memory), end with one message on stderr and exit code 2; a bug keeps its traceback. A command is imported when
it is called or its own help is asked: what ``lw2g --help`` says of it stands in its record.
"""

from __future__ import annotations

import errno
import logging
import re
import traceback
from collections.abc import Sequence
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import click
from click.exceptions import NoArgsIsHelpError
from click.shell_completion import CompletionItem

import lw2g.cli.bash_words  # noqa: F401  # a shell that asks finds it
from lw2g import __version__
from lw2g.cli.own_commands import OWN_COMMANDS
from lw2g.cli.signals import RUN_OF_COMMAND, TRACEBACK, unwinding
from lw2g.cli.signature import documented
from lw2g.errors import (
    ComponentError,
    Interrupted,
    Lw2gError,
    PluginError,
    as_word,
    closest,
    is_out_of_memory,
    nearest,
    printable,
)
from lw2g.ground.asked import typed_options
from lw2g.interfaces.command import HEADINGS, Command
from lw2g.registry.command_set import load_commands
from lw2g.registry.manager import DISABLE_VARIABLE
from lw2g.runtime.telling import CommandLog

__all__ = ["main"]


_LONGEST = 2_000
_LINE = "lw2g.line"
"""Where click's context has the words of the command line."""
_RUNNING = ("run", "resume", "continue", "fork", "sweep")
"""Commands that leave a run behind which can be resumed."""
_ELSEWHERE = {
    **dict.fromkeys(("classify", "infer"), "`lw2g predict` does that"),
    "evaluate": "`lw2g test` does that",
    **dict.fromkeys(("train", "fit"), "`lw2g start` does that for photos, `lw2g run` for a study"),
    **dict.fromkeys(("undo", "forget", "remove"), "`lw2g unlearn` does that"),
    **{word: f"`lw2g --{word}` does that" for word in ("help", "version")},
}
"""What does that which other programs have a command for."""
_OF_A_FILE = ("config", "grid")
"""Options with which other programs take a file."""


def _goes_on(ctx: click.Context) -> str:
    """Return which command continues the run of a command that failed; empty where none had begun."""
    run = ctx.meta.get(RUN_OF_COMMAND)
    if run is None:  # a command of several runs, or one that failed before it named its own
        return " (`lw2g resume` continues a run that had begun)"
    # a run that has begun has its configuration
    return f" (go on with: lw2g resume {as_word(run)})" if (run / "config.toml").is_file() else ""


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
    """A group that finds commands by their records, and prints lw2g's own errors without a traceback."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Accept ``--traceback`` anywhere on the command line."""
        ctx.meta[TRACEBACK] = TRACEBACK in args
        ctx.meta[_LINE] = tuple(args)
        try:
            return super().parse_args(ctx, [argument for argument in args if argument != TRACEBACK])
        except click.UsageError as error:
            raise self._of_a_command(ctx, error, args) or _told_in_one_line(error) from error
        except PluginError as error:  # Ctrl-C while a stranger's package is asked for its commands
            raise UserError(str(error), exit_code=error.exit_code) from error

    def _of_a_command(
        self, ctx: click.Context, error: click.UsageError, args: list[str]
    ) -> click.ClickException | None:
        """Return that an option stands before its command; None where it has another fault."""
        place = next((place for place, word in enumerate(args) if word in self.list_commands(ctx)), 0)
        command = self.get_command(ctx, args[place]) if place else None
        if command is None or not isinstance(error, click.NoSuchOption):
            return None
        if not any(error.option_name in (*one.opts, *one.secondary_opts) for one in command.params):
            return None
        typed = " ".join(map(as_word, args[:place]))
        return UserError(f"options stand after the command: lw2g {args[place]} {typed} ...")

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        with typed_options():
            return self._invoked(ctx)

    def _invoked(self, ctx: click.Context) -> Any:
        """Run the command, and turn errors of users into one line."""
        _show_progress()
        try:
            with unwinding():
                return super().invoke(ctx)
        except click.UsageError as error:
            raise _told_in_one_line(error, ctx.invoked_subcommand) from error
        except KeyboardInterrupt as stop:
            # a run answers Ctrl-C itself; what others write gets its name when it is whole
            told = ["interrupted", *getattr(stop, "__notes__", ())]
            raise UserError("; ".join(told), exit_code=Interrupted.exit_code) from None
        except Lw2gError as error:
            with_traceback = bool(ctx.meta.get(TRACEBACK))
            hint = ""
            if isinstance(error, ComponentError) and not with_traceback:
                hint = "; --traceback shows how"
                if ctx.invoked_subcommand in _RUNNING:
                    hint += _goes_on(ctx)
            message = _as_typed(str(error), ctx.meta[_LINE])
            raise UserError(f"{message}{hint}", exit_code=error.exit_code, whole=with_traceback) from error
        except OSError as error:
            if error.errno == errno.EPIPE:  # click handles a closed pipe
                raise
            hint = ""
            if ctx.invoked_subcommand in _RUNNING:
                hint = _goes_on(ctx)
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

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return [name for commands in _all_commands().values() for name in commands]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import the command of this name; None without one.

        Raises:
            PluginError: The package that offers it is broken.
        """
        for command in OWN_COMMANDS:
            if command.name == name:
                module, _, function = command.target.partition(":")
                return cast(click.Command, getattr(import_module(module), function))
        # what comes with lw2g is found without the packages of others
        for third_party in (False, True):
            entry = load_commands(third_party=third_party).find(name)
            if entry is not None:
                return entry.load()
        return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or fail with the nearest name."""
        name = args[0]
        if name.startswith("-"):
            return super().resolve_command(ctx, args)
        try:
            command = self.get_command(ctx, name)
        except PluginError:
            if not ctx.resilient_parsing:
                raise
            command = None  # a shell that completes wants no message
        if command is None and not ctx.resilient_parsing:
            ctx.fail(_unknown(name))
        return name if command else None, command, args[1:]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands in groups, none of which is imported."""
        by_group = _all_commands()
        width = max(len(name) for commands in by_group.values() for name in commands)
        for heading, commands in by_group.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), text) for name, text in commands.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the name of a command, none of which is imported."""
        items = []
        for commands in _all_commands().values():
            for name, text in commands.items():
                if name.startswith(incomplete):
                    items.append(CompletionItem(name, help=text))
        return items + click.Command.shell_complete(self, ctx, incomplete)


def _all_commands() -> dict[str, dict[str, str]]:
    """Return what each command does, by heading and name."""
    records: dict[str, Command] = {command.name: command for command in OWN_COMMANDS}
    for name, entry in load_commands().entries.items():
        records.setdefault(name, entry.command)
    names = sorted(records, key=lambda name: (records[name].rank, name))
    headings = [*HEADINGS, *sorted({record.group for record in records.values()}.difference(HEADINGS))]
    by_group: dict[str, dict[str, str]] = {}
    for heading in headings:
        listed = {name: records[name].help for name in names if records[name].group == heading}
        if listed:
            by_group[heading] = listed
    return by_group


def _unknown(name: str) -> str:
    """Return that there is no such command, and what may be the reason."""
    names = [name for commands in _all_commands().values() for name in commands]
    meant = f"; {_ELSEWHERE[name]}" if name in _ELSEWHERE else nearest(name, names)
    text = f"no command is called {name!r}{meant}"
    if meant:
        return text
    found = load_commands()
    broken = sorted({problem.plugin for problem in found.problems})
    if broken:
        text += f"; plugins with problems: {', '.join(broken)} (`lw2g doctor` says which)"
    if found.disabled:
        text += f"; {DISABLE_VARIABLE} leaves out: {', '.join(found.disabled)}"
    return text


def _as_typed(message: str, words: Sequence[str]) -> str:
    """Return a message with an option's short form in place of its key, where that is what was typed."""

    def named(found: re.Match[str]) -> str:
        option = "--" + found["name"].replace("_", "-")
        is_typed = any(word.partition("=")[0] == option for word in words)
        by_key = any(found["key"] in word for word in words)
        return f"{option}:" if is_typed and not by_key else found[0]

    return re.sub(r"(?<![\w.])(?P<key>[a-z]+\.(?P<name>[a-z_]+)):", named, message)


def _show_progress() -> None:
    """Print notes (:mod:`lw2g.ground.notes`) and the progress of long work (:mod:`lw2g.runtime.telling`)."""
    logger = logging.getLogger("lw2g.progress")
    if not logger.handlers:  # in tests one process runs many commands
        logger.addHandler(CommandLog())
        logger.setLevel(logging.INFO)
        logger.propagate = False


def _told_in_one_line(error: click.UsageError, called: str | None = None) -> click.ClickException:
    """Return a mistake on the command line without click's lines on usage; ``called``: the command."""
    if isinstance(error, NoArgsIsHelpError):
        return error  # the help itself, of a group that was called alone
    message = " ".join(error.format_message().split()).rstrip(".")  # choices stand below each other
    message = _otherwise_spelled(error) or _too_many(error, message) or message + _meant(error, message)
    for sentence, clause in ((". (Did", " (did"), (". Did", "; did"), (". Choose", "; choose")):
        message = message.replace(sentence, clause)
    # click's names of types say how a program checks them
    for kind, meant in (("integer", "whole number"), ("float", "number")):
        message = re.sub(f"is not a valid {kind}( range)?", f"is no {meant}", message)
    message = message[:1].lower() + message[1:]
    # click leaves the command out where its parser finds no value behind an option
    alone = "lw2g" if called is None else f"lw2g {called}"
    command = alone if error.ctx is None else error.ctx.command_path
    return UserError(f"{message}; see {command} --help")


def _too_many(error: click.UsageError, message: str) -> str:
    """Return which word is too many, and which a command takes; empty of another mistake."""
    found = re.search(r"unexpected extra arguments? \((.*)\)$", message)
    if found is None or error.ctx is None:
        return ""
    places: list[str] = []
    for parameter in error.ctx.command.params:
        places += parameter.get_usage_pieces(error.ctx)  # of an option there is none
    if above := _folder_above(error.ctx, places, found[1]):
        return f"too many words: give the folder above: {above}"
    takes = f"; expected {' '.join(places)} (names with spaces in quotes)" if places else ""
    return f"too many words: {found[1]}{takes}"


def _folder_above(ctx: click.Context, places: Sequence[str], extra: str) -> str:
    """Return the command on the folder above where a shell gave those in it (``photos/*``); else nothing.

    Args:
        ctx: Of the command.
        places: The words that it takes.
        extra: Those that are too many, with spaces between.
    """
    arguments = [one for one in ctx.command.params if isinstance(one, click.Argument)]
    if places.count("FOLDER") != 1 or len(places) != len(arguments):
        return ""
    taken = [str(ctx.params.get(str(one.name))) for one in arguments]
    line = list(ctx.meta[_LINE])
    words = [word for word in line if word in taken or f" {word} " in f" {extra} "]
    first = places.index("FOLDER")
    behind = len(places) - 1 - first
    folders = words[first : len(words) - behind]
    if len(words) <= len(places) or not all(Path(word).is_dir() for word in folders):
        return ""
    if len({Path(word).parent for word in folders}) > 1:
        return ""
    start = line.index(folders[0])
    rest = [word for word in line[start:] if word not in folders]
    return " ".join(["lw2g", *map(as_word, [*line[:start], Path(folders[0]).parent, *rest])])


def _otherwise_spelled(error: click.UsageError) -> str:
    """Return what an option that there is not stands for, or which is near; empty of another mistake."""
    if not isinstance(error, click.NoSuchOption) or error.ctx is None:
        return ""
    name = error.option_name.lstrip("-")
    typed = error.ctx.command_path
    found = ""
    for parameter in error.ctx.command.params:
        kind = parameter.type
        if isinstance(kind, click.Choice) and name in kind.choices:
            return f"no such option '{error.option_name}'; did you mean {parameter.opts[0]} {name}?"
        for place in parameter.get_usage_pieces(error.ctx):  # of an option there is none
            file = place.strip("[]")
            if name in _OF_A_FILE and file.endswith(".toml"):
                command = typed.removesuffix(f" {file}")  # so a sweep's own command is called
                given = _value_of(error.option_name, error.ctx.meta[_LINE]) or file
                return f"no such option '{error.option_name}'; a file is given alone: {command} {given}"
            typed += f" {place}"
            if name in (parameter.name, place.strip("[].").lower()):
                found = f"no such option '{error.option_name}': {place} stands without one"
    return f"{found}; {typed}" if found else _no_option(error, error.ctx)


def _no_option(error: click.NoSuchOption, ctx: click.Context) -> str:
    """Return that there is no such option, and which one is near.

    Of a word behind one dash click's parser names the first letter alone.
    """
    written = error.option_name
    if not written.startswith("--"):
        words = [word.partition("=")[0] for word in ctx.meta[_LINE]]
        written = next((word for word in words if word.startswith(written)), written)
    options = []
    for parameter in ctx.command.get_params(ctx):
        if isinstance(parameter, click.Option) and not parameter.hidden:
            options += [one.lstrip("-") for one in (*parameter.opts, *parameter.secondary_opts)]
    meant = closest(written.lstrip("-"), options)
    hint = f"; did you mean '--{meant}'?" if meant else ""
    return f"no such option '{written}'{hint}"


def _value_of(option: str, words: Sequence[str]) -> str:
    """Return what was typed as the value of an option, as one word; empty where it is the last."""
    for word, following in pairwise([*words, ""]):
        typed, equals, value = word.partition("=")
        if typed == option and (equals or following):
            return as_word(value if equals else following)
    return ""


def _meant(error: click.UsageError, message: str) -> str:
    """Return which choice may have been meant; empty where the mistake is another one or none is near."""
    kind = error.param.type if isinstance(error, click.BadParameter) and error.param is not None else None
    found = re.search(r"'([^']*)' is not one of", message)
    return nearest(found[1], kind.choices) if isinstance(kind, click.Choice) and found else ""


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
@click.option(TRACEBACK, is_flag=True, expose_value=False, help="Show where an error arose.")
@documented
def main() -> None:
    """lw2g teaches an image classifier new classes without the old images.

    A model of your own photos, in photos/CLASS/:

    \b
      lw2g start photos model --backbone vit-tiny
      lw2g predict model photo.jpg

    A study that compares methods, at first on drawings:

    \b
      lw2g run --baseline hide-prompt --policy min
    """
