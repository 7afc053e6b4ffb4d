"""Commands have their options and their help from the functions that they call."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import attrs
import click
import pytest
from click.testing import CliRunner

from lw2g.cli.signature import choices_of, field_option, help_of, option_of, options_of
from lw2g.interfaces.options import option


def example(
    run: str | Path,
    *,
    task: int | None = None,
    keep_all: bool = False,
    weights: str | Path | None = None,
    head: str = "lda",
    seed: int = 0,
    parts: Sequence[str] = (),
    dtype: Literal["float32", "float16"] = "float32",
) -> None:
    """Open the run in the directory ``run``, or at ``task``, as :func:`load` does.

    ``lw2g show`` tells more.

    From Python, ``run`` may be an object.

    Args:
        run: The directory.
        task: The task, which may be
            any; None for the newest.
        keep_all: Whether to keep everything.
        weights: A file, if it has moved.
        head: The head.
        seed: The seed.
        parts: A part; a list for several. From Python also
            an object.
        dtype: How numbers are stored.

    Raises:
        DataError: There is none.
    """


def parsed(*words: str) -> dict[str, object]:
    """Return what a command with the example's options makes of a command line."""

    @click.command()
    @options_of(example, "task", "keep_all", "weights")
    @option_of(example, "head", "--classifier")
    @option_of(example, "seed", type=int)
    def command(**values: object) -> None:
        seen.update(values)

    seen: dict[str, object] = {}
    done = CliRunner().invoke(command, list(words))
    assert done.exit_code == 0, done.output
    return seen


def test_options_have_the_types_and_defaults_of_the_parameters() -> None:
    """What is left out is the function's default; the rest is of the annotated type."""
    assert parsed() == {"task": None, "keep_all": False, "weights": None, "head": "lda", "seed": 0}
    given = parsed("--task", "2", "--keep-all", "--weights", "w", "--classifier", "cosine")
    assert given == {"task": 2, "keep_all": True, "weights": Path("w"), "head": "cosine", "seed": 0}


def test_help_is_the_docstring_in_words_of_the_command_line() -> None:
    """Parameters are called as they are typed; sections, and what is for programs alone, are left out."""
    assert help_of(example, "The exit code is 1.") == (
        "Open the run in the directory RUN, or at --task, as `load` does.\n\n"
        "`lw2g show` tells more.\n\nThe exit code is 1."
    )


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("task", "The task, which may be any. [default: the newest]"),
        ("keep_all", "Keep everything."),
        ("weights", "A file, if it has moved."),
        ("parts", "A part; repeatable."),
        ("dtype", "How numbers are stored."),
    ],
)
def test_an_option_says_what_its_parameter_is(name: str, says: str) -> None:
    """Entries over several lines are one text; None and "whether" are words of Python."""
    command = option_of(example, name)(click.Command("example", callback=lambda: None))
    (option,) = command.params
    assert isinstance(option, click.Option)
    assert option.help == says


def test_a_parameter_without_a_word_is_refused() -> None:
    """An option cannot lack its help."""

    def silent(*, task: int | None = None) -> None:
        """Do nothing."""

    with pytest.raises(LookupError, match="silent does not say what 'task' is"):
        option_of(silent, "task")


def test_choices_are_those_of_the_annotation() -> None:
    """What a ``Literal`` does not name is refused by the command line."""
    command = option_of(example, "dtype")(click.Command("example", callback=lambda **values: values))
    assert command.main(["--dtype", "float16"], standalone_mode=False) == {"dtype": "float16"}
    assert CliRunner().invoke(command, ["--dtype", "float64"]).exit_code == 2
    assert choices_of("Literal['a', 'b'] | None") == ["a", "b"]
    assert choices_of("str | None") == []


@attrs.frozen
class Section:
    """A config class."""

    steps: int = option(7, "steps of a task; more take longer")


def test_an_option_of_a_section_is_unset_unless_it_is_given() -> None:
    """So the value of a file or a preset holds, and not the default of the class."""
    command = field_option(Section, "steps")(click.Command("example", callback=lambda **values: values))
    assert command.main([], standalone_mode=False) == {"steps": None}
    assert command.main(["--steps", "3"], standalone_mode=False) == {"steps": 3}
    (found,) = command.params
    assert isinstance(found, click.Option)
    assert found.help == "Steps of a task."
