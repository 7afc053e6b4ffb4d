"""Commands of other packages: found by records, imported when they are called, and never in the way."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from all_commands import commands_of
from lw2g.api import examined_steps as steps
from lw2g.cli import authoring
from lw2g.cli.main import main
from lw2g.cli.own_commands import OWN_COMMANDS as OWN
from lw2g.interfaces.command import HEADINGS
from lw2g.registry.catalogue import load_catalogue
from lw2g.registry.command_set import load_commands
from strangers import COMMANDS, commanding, install

CODE = """
import click

@click.command(help="Print a word.")
@click.argument("word")
def say(word):
    click.echo(f"said {word}")

number = 3
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed packages; what is imported from there is forgotten."""
    before = set(sys.modules)
    monkeypatch.delenv("LW2G_DISABLE_PLUGINS", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith("theirs"):
            del sys.modules[name]


def typed(*arguments: str) -> Result:
    """Run the command line."""
    return CliRunner().invoke(main, list(arguments), prog_name="lw2g")


def offer(site: Path, *commands: str, package: str = "theirs-here") -> None:
    """Install a package that offers commands, given as ``NAME=TARGET``, and code of its own."""
    install(site, package, package.replace("-", "_"), commanding(*commands), COMMANDS)
    (site / "theirs_code.py").write_text(CODE, encoding="utf-8")


def test_records_are_those_of_the_commands() -> None:
    """Each record that comes with lw2g names a command of that name, under one of lw2g's headings, once."""
    ours = load_commands(third_party=False)
    assert ours.problems == ()
    assert {record.name for record in OWN} <= set(ours.entries)
    found = dict(commands_of(main))
    assert [found[name].name for name in ours.entries] == list(ours.entries)
    assert {entry.command.group for entry in ours.entries.values()} == set(HEADINGS)
    assert len(ours.entries) >= 20


def test_a_command_of_another_package_is_listed_helped_completed_and_run(site: Path) -> None:
    """Its own heading follows those of lw2g; its code is imported when it is called, not before."""
    offer(site, "say-it=theirs_code:say")
    listing = typed("--help").stdout
    headings = [
        line.removesuffix(":") for line in listing.splitlines() if line.endswith(":") and line[0] != " "
    ]
    assert headings == ["Options", *HEADINGS, "Mine"]
    assert "say-it      Say say-it." in listing
    found = ShellComplete(main, {}, "lw2g", "_LW2G_COMPLETE").get_completions([], "say")
    assert [(item.value, item.help) for item in found] == [("say-it", "Say say-it.")]
    assert "theirs_code" not in sys.modules
    assert "Print a word." in typed("say-it", "--help").stdout
    assert typed("say-it", "yes").stdout == "said yes\n"
    missing = typed("say-it")
    assert (missing.exit_code, missing.stderr) == (
        2,
        "error: missing argument 'WORD'; see lw2g say-it --help\n",
    )
    assert "did you mean 'say-it'?" in typed("say-at").stderr


def test_a_command_is_no_component(site: Path) -> None:
    """The catalogue of a run knows none; `lw2g plugins` lists those of others with their origin."""
    offer(site, "say-it=theirs_code:say")
    assert all(entry.origin.distribution != "theirs-here" for entry in load_catalogue().components())
    assert load_catalogue().problems == ()
    listed = json.loads(typed("plugins", "--json").stdout)
    assert [entry for entry in listed if entry["kind"] == "command"] == [
        {
            "kind": "command",
            "name": "say-it",
            "summary": "Say say-it.",
            "plugin": "theirs_here",
            "distribution": "theirs-here",
            "version": "1.0",
        }
    ]
    assert "say-it (theirs-here)" in typed("plugins").stdout
    assert typed("plugins", "say-it").stderr == (
        "error: no component is called 'say-it', but a command; `lw2g say-it --help` describes it\n"
    )


@pytest.mark.parametrize(
    ("target", "line"),
    [
        (
            "theirs_gone:say",
            "error: plugin 'theirs_here' (theirs-here 1.0) cannot import its command 'say-it': "
            "ModuleNotFoundError: No module named 'theirs_gone'; fix or uninstall 'theirs-here', or set "
            "LW2G_DISABLE_PLUGINS=theirs_here",
        ),
        (
            "theirs_code:number",
            "error: plugin 'theirs_here' (theirs-here 1.0) names 'theirs_code:number' as its command "
            "'say-it', no command of click; decorate the function with click.command()",
        ),
    ],
)
def test_broken_code_is_told_when_its_command_is_called(site: Path, target: str, line: str) -> None:
    """One line names the package and what to do; listings and the commands of lw2g do not mind."""
    offer(site, f"say-it={target}")
    for words in (["say-it", "yes"], ["say-it", "--help"]):
        result = typed(*words)
        assert (result.exit_code, result.stderr) == (2, line + "\n")
    assert "say-it" in typed("--help").stdout
    assert typed("completion", "bash").exit_code == 0
    found = ShellComplete(main, {}, "lw2g", "_LW2G_COMPLETE").get_completions(["say-it"], "-")
    assert "--traceback" in [item.value for item in found]  # nothing of the broken one, and no message
    *_, last = steps.plugins(load_catalogue(entry_points=False))
    assert line == f"error: {last.text}; {last.remedy}"


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("raise SystemExit('no')", "cannot be imported"),
        ("lw2g_command = print", "has 'lw2g_command', which is no hook (did you mean 'lw2g_commands'?)"),
        (commanding("Say=x:y"), "fails in lw2g_commands"),
    ],
)
def test_a_broken_package_disturbs_no_other_command(site: Path, source: str, what: str) -> None:
    """It is a problem of `lw2g plugins` and the doctor, and the answer to its own name."""
    install(site, "theirs-here", "theirs_here", source, COMMANDS)
    assert typed("--help").exit_code == 0
    (problem,) = load_commands().problems
    assert what in problem.text
    called = typed("theirs-here")
    assert (called.exit_code, "no command is called 'theirs-here'" in called.stderr) == (2, True)


def test_a_package_that_imports_torch_for_its_records_is_told(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every `lw2g --help` would wait for it; its commands work all the same."""
    heavy = "import sys\nsys.modules['torch'] = sys\n"
    install(site, "theirs-here", "theirs_here", heavy + commanding("say-it=theirs_code:say"), COMMANDS)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    found = load_commands()
    assert [problem.what for problem in found.problems] == [
        "imports torch in 'theirs_here', and every `lw2g --help` waits for it"
    ]
    assert "say-it" in found.entries


def test_ctrl_c_in_a_package_that_hangs_names_it(site: Path) -> None:
    """Nothing else could say what `lw2g --help` waits for."""
    install(site, "theirs-here", "theirs_here", "raise KeyboardInterrupt", COMMANDS)
    stopped = typed("--help")
    assert (stopped.exit_code, stopped.stderr) == (
        2,
        "error: plugin 'theirs_here' (theirs-here 1.0) was interrupted; fix or uninstall 'theirs-here', "
        "or set LW2G_DISABLE_PLUGINS=theirs_here\n",
    )


def test_lw2g_keeps_its_own_names(site: Path) -> None:
    """A stranger's `runs` is called with its package before it, and two strangers' one name is neither's."""
    offer(site, "runs=theirs_code:say", "twice=theirs_code:say")
    offer(site, "twice=theirs_code:say", package="theirs-too")
    assert typed("runs", "--help").stdout != typed("theirs-here:runs", "--help").stdout
    assert typed("theirs-here:runs", "yes").stdout == "said yes\n"
    refused = typed("twice", "yes")
    assert refused.exit_code == 2
    assert (
        "command 'twice' cannot be used: plugin 'theirs_here' (theirs-here 1.0) registers" in refused.stderr
    )
    told = [str(problem) for problem in load_commands().problems]
    assert "registers command 'runs', which lw2g has itself; its own is called 'theirs-here:runs'" in told[0]


def test_a_disabled_package_is_not_even_imported(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable takes the entry-point names of commands, too, and is told where a name is missing."""
    install(site, "theirs-here", "theirs_here", "raise SystemExit(3)", COMMANDS)
    monkeypatch.setenv("LW2G_DISABLE_PLUGINS", "theirs_here")
    assert load_commands().problems == ()
    assert load_catalogue().problems == ()
    assert "LW2G_DISABLE_PLUGINS leaves out: theirs_here" in typed("say-it").stderr
    assert "(did you mean 'runs'?); see" in typed("runss").stderr  # which is meant: nothing is left out


def test_a_hook_in_the_wrong_group_is_told(site: Path) -> None:
    """Commands of a module that is named among components alone would never be found."""
    install(site, "theirs-here", "theirs_here", commanding("say-it=theirs_code:say"))
    (problem,) = load_catalogue().problems
    assert str(problem) == (
        "plugin 'theirs_here' (theirs-here 1.0) has 'lw2g_commands', which is called of modules in the "
        "entry-point group 'lw2g.commands' alone; name 'theirs_here' in that group, too"
    )
    install(site, "theirs-both", "theirs_both", commanding("say-it=theirs_code:say"), "lw2g", COMMANDS)
    assert [problem.plugin for problem in load_catalogue().problems] == ["theirs_here"]
    assert "say-it" in load_commands().entries


def test_what_an_author_imports_is_documented() -> None:
    """Every name of the module for authors says what it is, and stands on their page."""
    page = Path(__file__).resolve().parents[3] / "docs" / "plugins.md"
    if not page.exists():
        pytest.skip("needs the source tree")
    text = page.read_text(encoding="utf-8").partition("## A command")[2]
    assert [name for name in authoring.__all__ if not getattr(authoring, name).__doc__] == []
    assert [name for name in authoring.__all__ if name not in text] == []


def test_commands_of_lw2g_ask_no_other_package(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that waits for a network cannot hold up a command that it does not offer."""
    install(site, "theirs-here", "theirs_here", "raise RuntimeError", COMMANDS)
    monkeypatch.setattr("lw2g.cli.main.load_commands", None)  # not even looked for
    assert typed("runs", "--help").exit_code == 0
    monkeypatch.undo()
    monkeypatch.syspath_prepend(str(site))
    assert load_commands(third_party=False).problems == ()


def test_commands_are_listed_in_the_order_of_their_use() -> None:
    """By their ranks, whichever package brings them; under a heading without ranks by name."""
    helped = typed("--help").stdout
    listed = {}
    for heading in ("Models of photos", "Studies", "Components, data and installation"):
        rows = helped.partition(f"{heading}:\n")[2].partition("\n\n")[0].splitlines()
        listed[heading] = [row.split()[0] for row in rows]
    first = ["start", "predict", "learn", "test", "show", "teach", "unlearn", "export"]
    assert listed["Models of photos"] == [*first, "push", "pull", "peft"]
    assert listed["Studies"] == ["run", "sweep", "report", "runs", "resume", "continue", "fork", "config"]
    without = listed["Components, data and installation"]
    assert without == sorted(without)
