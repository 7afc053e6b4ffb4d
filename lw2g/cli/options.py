"""The options that ``run`` and ``config`` share, and how they become one resolved experiment."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import click

from lw2g.cli.completion import complete_component, complete_setting
from lw2g.errors import ConfigError, shown
from lw2g.interfaces.component import Kind

if TYPE_CHECKING:
    from lw2g.config.model import Resolved
    from lw2g.registry.catalogue import Catalogue

__all__ = [
    "ExperimentCommand",
    "ExperimentOptions",
    "check_seeds",
    "devices_option",
    "experiment_options",
    "parse_seeds",
    "parse_settings",
    "settings_option",
]

F = TypeVar("F", bound=Callable[..., Any])


@attrs.frozen(kw_only=True)
class ExperimentOptions:
    """What the command line says about an experiment, before anything is looked up."""

    file: Path | None
    names: dict[str, str | None]
    constraints: Sequence[str] | None
    trackers: Sequence[str]
    weights: Path | None
    overrides: dict[str, Any]

    @classmethod
    def of(cls, values: dict[str, Any]) -> ExperimentOptions:
        """Collect the values that click has parsed."""
        overrides = dict(values["settings"])
        for key in ("protocol", "seed", "device", "devices", "precision"):
            if values[key] is not None:
                overrides[f"run.{key}"] = values[key]
        return cls(
            file=values["file"],
            names={
                kind: values[kind] for kind in ("baseline", "policy", "retrieval", "benchmark", "backbone")
            },
            constraints=values["constraint"] or None,
            trackers=values["tracker"],
            weights=values["weights"],
            overrides=overrides,
        )

    def resolve(self, catalogue: Catalogue) -> Resolved:
        """Resolve the experiment.

        Raises:
            ConfigError: Something cannot be used.
        """
        from lw2g.config.resolve import resolve

        return resolve(
            catalogue,
            file=self.file,
            overrides=self.overrides,
            constraints=self.constraints,
            trackers=self.trackers,
            weights=self.weights,
            **self.names,
        )


class AnyPath(click.Path):
    """A path that the system can be asked about."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """Return the path, or refuse one with NUL in it, which no file system has."""
        if "\0" in str(value):
            raise ConfigError(f"no path can be called {shown(str(value))}; leave the NUL character out")
        return super().convert(value, param, ctx)


class ExperimentCommand(click.Command):
    """A command that says how an option of a component is set when it is tried as an option of its own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line.

        Raises:
            ConfigError: An option of a component or section was given as if it were the command's own.
            NoSuchOption: Nothing has an option of that name.
        """
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            from lw2g.config.describe import places_of
            from lw2g.registry.catalogue import load_catalogue

            places = places_of(error.option_name.lstrip("-").replace("-", "_"), load_catalogue())
            if not places:
                raise
            keys = " or ".join(f"--set {place}=VALUE" for place in places)
            raise ConfigError(f"no such option: {error.option_name}; did you mean {keys}?") from error


def experiment_options(command: F) -> F:
    """Add the argument and options that describe an experiment."""
    path = AnyPath(path_type=Path)
    parts: tuple[tuple[Kind, str], ...] = (
        ("baseline", "Baseline: how a parameter set adapts the backbone."),
        ("policy", "Growth policy: when a set is added."),
        ("retrieval", "Retrieval strategy in place of the baseline's own."),
        ("benchmark", "Task stream."),
        ("backbone", "Backbone component, or any timm model."),
    )
    decorators = [
        click.argument("file", metavar="[CONFIG.toml]", type=path, required=False),
        *(
            click.option(f"--{kind}", metavar="NAME", help=text, shell_complete=complete_component(kind))
            for kind, text in parts
        ),
        click.option(
            "--constraint",
            metavar="NAME",
            multiple=True,
            help="Constraint in place of the policy's own; repeatable; `none` for none.",
            shell_complete=complete_component("constraint"),
        ),
        click.option(
            "--tracker",
            metavar="NAME",
            multiple=True,
            help="Receives the run's events, such as tensorboard; repeatable.",
            shell_complete=complete_component("tracker"),
        ),
        click.option(
            "--protocol",
            type=click.Choice(["official", "like-for-like"]),
            help="Benchmark options and backbone: the authors' own, or the same for every method.",
        ),
        click.option("--weights", metavar="FILE", type=path, help="Weights file for the backbone."),
        settings_option("Any option by its dotted key, such as growth.energy=0.99; repeatable."),
        click.option("--seed", type=int, help="Seed of everything random."),
        click.option("--seeds", callback=_seeds_callback, metavar="0,1,2", help="One run per seed."),
        click.option(
            "--out", type=path, metavar="DIR", help="The run's directory (default: a new one in runs/)."
        ),
        click.option("--device", metavar="NAME", help="auto, cpu, mps, cuda or cuda:N."),
        devices_option("Processes that work on the run together, each on a device of its own."),
        click.option("--precision", metavar="NAME", help="32-true or bf16-mixed."),
    ]
    for decorate in reversed(decorators):
        command = decorate(command)
    return command


def parse_seeds(text: str) -> tuple[int, ...]:
    """Return the seeds of a list such as ``0,1,2``.

    Raises:
        ValueError: It is no list of different whole numbers.
    """
    try:
        seeds = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"expected whole numbers separated by commas but got {shown(text)}") from None
    check_seeds(seeds)
    return seeds


def check_seeds(seeds: Any) -> None:
    """Refuse what is no list of seeds.

    Raises:
        ValueError: It is empty, or holds anything but different whole numbers of 0 to 2^63 - 1.
    """
    listed = isinstance(seeds, list | tuple) and bool(seeds)
    if not listed or not all(type(seed) is int and 0 <= seed < 2**63 for seed in seeds):
        raise ValueError(f"expected seeds of 0 to {2**63 - 1} but got {shown(seeds)}")
    if len(set(seeds)) != len(seeds):
        raise ValueError(f"expected different seeds but got {shown(seeds)}")


def _seeds_callback(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return parse_seeds(text)
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from error


def devices_option(help_text: str) -> Callable[[F], F]:
    """Return the option ``--devices N``, the same for every command that runs something.

    Args:
        help_text: What it is there.
    """
    return click.option("--devices", type=click.IntRange(min=1), metavar="N", help=help_text)


def settings_option(help_text: str, *, complete: bool = True) -> Callable[[F], F]:
    """Return the option ``--set KEY=VALUE``, the same for every command that has it.

    Args:
        help_text: What it sets there.
        complete: Whether its keys are completed as those of an experiment.
    """
    return click.option(
        "--set",
        "settings",
        metavar="KEY=VALUE",
        multiple=True,
        callback=parse_settings,
        help=help_text,
        shell_complete=complete_setting if complete else None,
    )


def parse_settings(
    context: click.Context, parameter: click.Parameter, settings: Sequence[str]
) -> tuple[tuple[str, Any], ...]:
    """Return the pairs of ``KEY=VALUE`` texts; the callback of every ``--set`` and its like.

    Raises:
        ConfigError: A text has no key or no equals sign.
    """
    from lw2g.config.toml import parse_value

    pairs, option = [], parameter.opts[0]
    for text in settings:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ConfigError(
                f"{option}: expected KEY=VALUE but got {shown(text)}; write it like growth.energy=0.9"
            )
        pairs.append((key.strip(), parse_value(value.strip())))
    return tuple(pairs)
