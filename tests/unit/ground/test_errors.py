"""An error says what is wrong and what to do in two fields; its text is made in one place."""

import ast
import pickle
from pathlib import Path

import pytest

from lw2g import errors
from lw2g.errors import ContractError, DataError, Lw2gError
from lw2g.ground.asked import typed_options

ROOT = Path(__file__).parents[3]
KINDS = {name for name, found in vars(errors).items() if isinstance(found, type)}


@pytest.mark.parametrize("error", [DataError("no file", "get one"), ContractError("x", "y", "policy 'min'")])
def test_fields_and_text_survive_the_way_between_processes(error: Lw2gError) -> None:
    """A worker's error is the same where it is told."""
    other = pickle.loads(pickle.dumps(error))
    assert (type(other), str(other), vars(other)) == (type(error), str(error), vars(error))
    assert str(error) == f"{error.what}; {error.remedy}"


def test_without_a_remedy_the_text_is_what_is_wrong() -> None:
    """Nothing is added."""
    assert str(DataError("no file")) == "no file"


def test_a_file_in_place_of_a_folder_is_told(tmp_path):
    """No other name is offered for what is there."""
    (tmp_path / "photo.png").write_bytes(b"")
    told = errors.no_folder(tmp_path / "photo.png")
    assert told == f"{str(tmp_path / 'photo.png')!r} is a file and no folder"


@pytest.mark.parametrize("folder", ["lw2g", "plugins"])
def test_no_message_carries_its_remedy_inside(folder: str) -> None:
    """Whoever raises passes the remedy as what it is, so that nobody has to cut it out again."""
    inside = [
        f"{path.relative_to(ROOT)}:{call.lineno}"
        for path in (ROOT / folder).rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") in KINDS and len(call.args) == 1
        if "; " in _words(call.args[0])
    ]
    assert not inside


def _words(message: ast.expr) -> str:
    """Return what a message says itself, without what is put into it."""
    parts = message.values if isinstance(message, ast.JoinedStr) else [message]
    return "".join(one.value if isinstance(one, ast.Constant) else "?" for one in parts)


@pytest.mark.parametrize(
    ("command", "call"),
    [
        ("go on: lw2g resume runs/a", "go on: lw2g.resume('runs/a')"),
        ("or resume with `lw2g resume 'my runs'`, or", "or resume with `lw2g.resume('my runs')`, or"),
        ("go on: lw2g resume RUN --devices 1; x", "go on: lw2g.resume(RUN, devices=1); x"),
        ("a: lw2g resume a --set b.root=PLACE", "a: lw2g.resume('a', settings={'b.root': PLACE})"),
        ("go on: lw2g continue a --tasks 3", "go on: lw2g.continue_run('a', tasks=3)"),
        ("anew: lw2g run a/config.toml --out NEW", "anew: lw2g.run('a/config.toml', out=NEW)"),
        ("one: lw2g export RUN OUT --learnable", "one: lw2g.export(RUN, OUT, learnable=True)"),
        ("see all: lw2g report a, b", "see all: lw2g.report('a'), b"),
        *[
            (same, same)
            for same in (
                "`lw2g plugins policy` lists all",  # no function does it
                "again: lw2g run with --out a",  # words of a sentence
                "anew: lw2g run a.toml --set b.lr=...",
                "make one: lw2g start (a model), lw2g run (a run)",
                "lw2g start keeps what lda has",
                "teach it another: lw2g learn",
                "close it: lw2g resume 'a",
                "`hf download x`",
            )
        ],
    ],
)
def test_a_program_is_told_of_the_call_that_a_command_is(command: str, call: str) -> None:
    """Where a function of lw2g does the same; anything else stays a command."""
    error = Lw2gError("it stopped", command)
    assert str(error) == f"it stopped; {call}"
    with typed_options():
        assert str(error) == f"it stopped; {command}"


@pytest.mark.parametrize(
    ("options", "given"),
    [
        ("--set benchmark.root='/my photos'", "give 'benchmark.root': '/my photos'"),
        (
            "--baseline simple-cil --set baseline.head=lda --set head.lda.shrinkage=0.1",
            "give baseline='simple-cil', 'baseline.head': 'lda', 'head.lda.shrinkage': 0.1",
        ),
        ("--constraint cpk --set policy.map=[0,0,1]", "give constraints='cpk', 'policy.map': [0,0,1]"),
        ("--set benchmark.file=FILE; lw2g x", "give 'benchmark.file': FILE; lw2g x"),
        ("--weights FILE, or an export", "weights=FILE, or an export"),  # a sentence, which has its own verb
    ],
)
def test_options_that_are_a_whole_remedy_are_arguments_to_give(options: str, given: str) -> None:
    """A program gets a sentence with what Python takes, and a command line what it can type."""
    error = Lw2gError("it is none", options)
    assert str(error) == f"it is none; {given}"
    assert str(Lw2gError(str(error))) == str(error)  # what is told within another message
    with typed_options():
        assert str(error) == f"it is none; {options}"


def test_a_program_is_told_of_arguments_and_a_command_line_of_options() -> None:
    """Whole commands stay as they are, and so does what only looks like an option."""
    error = DataError(
        "--max-loss: it is -1", "leave --out, say --set a.b=1 (--x), or: lw2g run --out A; 'c--d'"
    )
    told = "max_loss: it is -1; leave out, say a.b=1 (x), or: lw2g run --out A; 'c--d'"
    assert str(error) == told
    with typed_options():
        assert str(error) == f"{error.what}; {error.remedy}"
    assert str(error) == told
