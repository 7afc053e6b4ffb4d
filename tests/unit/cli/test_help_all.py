"""The help of a command with many options shows first those that a first user needs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from all_commands import commands_of
from lw2g.cli.main import main
from lw2g.cli.signature import Further, LongCommand

MOST_AT_FIRST = 12
FEW = 6
"""So many options are shown at once, whatever they are for."""


def commands(group: click.Group = main, path: str = "") -> Iterator[tuple[str, click.Command]]:
    """Yield every command with its words."""
    for name, command in commands_of(group):
        words = f"{path} {name}".strip()
        if isinstance(command, click.Group):
            yield from commands(command, words)
        else:
            yield words, command


COMMANDS = dict(commands())


def helped(*words: str) -> str:
    done = CliRunner().invoke(main, list(words), prog_name="lw2g")
    assert done.exit_code == 0, done.output
    return done.output


def spelled(command: click.Command, kind: type[click.Option]) -> set[str]:
    return {one.opts[0] for one in command.params if isinstance(one, kind) and not one.hidden}


def shown(text: str) -> set[str]:
    """Return the options that a help lists."""
    lines = text.partition("\nOptions:\n")[2].splitlines()
    return {word.strip(",") for line in lines for word in line.split()[:1] if word.startswith("--")}


@pytest.mark.parametrize("words", COMMANDS)
def test_further_options_are_in_the_whole_help_alone(words):
    """Whichever the command: what is marked is left out at first, and nothing else."""
    command = COMMANDS[words]
    options, further = spelled(command, click.Option), spelled(command, Further)
    text = helped(*words.split(), "--help")
    if not further:
        assert len(options) <= FEW, "many options, and none of them is a further one"
        assert "--help-all" not in text
        return
    assert isinstance(command, LongCommand)
    assert shown(text) == options - further | {"--help-all"}
    assert len(options - further) <= MOST_AT_FIRST
    last = " ".join(text.splitlines()[-1].split())
    assert last == f"--help-all Show {len(further)} further options, too, and exit."
    assert shown(helped(*words.split(), "--help-all")) == options


@pytest.mark.parametrize(("command", "option"), [("run", "--weights"), ("submit", "--new-protocol")])
def test_an_option_that_a_message_names_is_shown_at_first(command, option):
    """Weights in a file, without a network; the first protocol of a store, which `store init` names."""
    assert option in shown(helped(command, "--help"))


def test_a_further_option_is_used_and_told_like_any_other():
    """Hidden at first is hidden from the help alone."""
    done = CliRunner().invoke(main, ["config", "--devices", "2", "--precision", "32-true"])
    assert "devices = 2" in done.stdout
    refused = CliRunner().invoke(main, ["run", "--devices", "none"])
    assert (refused.exit_code, "--devices" in refused.stderr) == (2, True)


def test_the_help_asks_for_nothing_that_a_command_needs():
    """An argument or a required option that is missing does not matter."""
    assert "--devices" in helped("fork", "--help-all")


def test_completion_offers_further_options():
    """A shell knows all options."""
    asked = {"_LW2G_COMPLETE": "bash_complete", "COMP_WORDS": "lw2g run --dev", "COMP_CWORD": "2"}
    code = "from lw2g.cli.main import main; main(prog_name='lw2g')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
        check=False,
    )
    assert {line.partition(",")[2] for line in done.stdout.split()} == {"--device", "--devices"}
