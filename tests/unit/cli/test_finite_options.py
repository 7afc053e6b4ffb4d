"""No option takes NaN or infinity: comparisons with NaN are false, so that a bound would let it pass."""

from __future__ import annotations

import math
import typing
from collections.abc import Iterator
from typing import Any

import attrs
import click
import pytest

from all_commands import commands_of
from lw2g.cli.main import main
from lw2g.config.settings import OWN_SECTIONS
from lw2g.config.structure import structure
from lw2g.registry.catalogue import load_catalogue
from lw2g.sweeps.executors import Options

NOT_FINITE = (math.nan, math.inf, -math.inf)


def numbers_of(group: click.Group, path: str = "lw2g") -> Iterator[tuple[str, click.Parameter]]:
    """Yield every option of every command that takes a number with a point."""
    for name, command in commands_of(group):
        if isinstance(command, click.Group):
            yield from numbers_of(command, f"{path} {name}")
            continue
        for parameter in command.params:
            if parameter.type.name.startswith("float"):
                yield f"{path} {name} {parameter.opts[-1]}", parameter


def configurations() -> Iterator[tuple[str, type[Any]]]:
    """Yield the options of every section, of every component of every kind, and of executors."""
    yield from OWN_SECTIONS.items()
    yield "executor", Options
    for entry in load_catalogue().components():
        if entry.component.kind != "metric":  # metrics have no options
            yield f"{entry.component.kind} {entry.component.name}", entry.component.config


def takes_float(kind: Any) -> bool:
    """Whether a type has a number with a point somewhere inside."""
    return kind in (float, Any) or any(map(takes_float, typing.get_args(kind)))


def as_value(kind: Any, number: float) -> Any:
    """Return a value of a type with the number in every place that takes one."""
    if typing.get_origin(kind) is tuple:
        members = [member for member in typing.get_args(kind) if member is not Ellipsis]
        return [as_value(member, number) for member in members]
    return number


@pytest.mark.parametrize("number", NOT_FINITE)
def test_no_option_of_a_command_takes_it(number: float) -> None:
    """Every option of the command line that is a number refuses it, `learn --max-loss` among them."""
    found = dict(numbers_of(main))
    assert {name.split()[-1] for name in found} >= {"--max-loss", "--reject", "--gpus-per-job"}
    taken = []
    for name, parameter in found.items():
        try:
            parameter.type.convert(str(number), parameter, None)
        except click.BadParameter:
            continue
        taken.append(name)
    assert taken == []


@pytest.mark.parametrize("number", NOT_FINITE)
def test_no_option_of_a_configuration_takes_it(number: float) -> None:
    """Nor does any option of a section or a component that may be a number, alone or in a list."""
    taken, tried = [], 0
    for owner, config in configurations():
        hints = typing.get_type_hints(config)
        for field in attrs.fields(config):
            if not takes_float(hints[field.name]):
                continue
            tried += 1
            _, problems = structure(config, {field.name: as_value(hints[field.name], number)})
            if field.name not in {key for key, _ in problems}:
                taken.append(f"{owner}: {field.name}")
    assert taken == []
    assert tried > 100
