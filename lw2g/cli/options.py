"""The options that ``run`` and ``config`` share, and their resolution to an experiment."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import click

from lw2g.api import run
from lw2g.api.arguments import parse_settings
from lw2g.api.experiment import experiment_of
from lw2g.api.plugins import places_of
from lw2g.cli.completion import complete_component, complete_setting
from lw2g.cli.signature import option_of
from lw2g.errors import ConfigError, shown

if TYPE_CHECKING:
    from lw2g.api.experiment import Experiment
    from lw2g.interfaces.component import Kind
    from lw2g.registry.catalogue import Catalogue

__all__ = [
    "ExperimentCommand",
    "ExperimentOptions",
    "FiniteRange",
    "devices_option",
    "experiment_options",
    "settings_given",
    "settings_option",
]

F = TypeVar("F", bound=Callable[..., Any])
RECOMMENDED = {
    "baseline": "slca-plus-plus",
    "baseline.head": "lda",
    "baseline.head_carry": "gated",
    "routing.expert": "frozen",
}
"""What ``--recommended`` stands for; docs/carries.md says on which streams it was measured."""
_MOST_SEEDS = 1_000


@attrs.frozen(kw_only=True)
class ExperimentOptions:
    """The arguments of :func:`lw2g.config.resolve.resolve` on the command line."""

    arguments: dict[str, Any]

    @classmethod
    def of(cls, values: dict[str, Any]) -> ExperimentOptions:
        """Collect the values that click has parsed."""
        overrides = dict(values["settings"])
        for key in ("protocol", "seed", "device", "devices", "precision"):
            if values[key] is not None:
                overrides[f"run.{key}"] = values[key]
        names = ("file", "baseline", "policy", "retrieval", "benchmark", "backbone", "weights")
        arguments = {name: values[name] for name in names}
        if values["recommended"]:
            if arguments["baseline"] is not None:
                raise click.UsageError("--recommended names the baseline; leave --baseline out")
            _, *options = RECOMMENDED
            arguments["baseline"] = RECOMMENDED["baseline"]
            overrides = {key: RECOMMENDED[key] for key in options} | overrides
        arguments["overrides"] = overrides
        arguments["constraints"] = values["constraints"] or None
        arguments["trackers"] = values["tracker"]
        return cls(arguments=arguments)

    def resolve(self, catalogue: Catalogue | None = None) -> Experiment:
        """Put the experiment together.

        Args:
            catalogue: Where components are looked up; None for all that are installed.

        Raises:
            ConfigError: Something cannot be used.
        """
        return experiment_of(catalogue=catalogue, **self.arguments)


class FiniteRange(click.FloatRange):
    """A number in a range; never NaN, which no comparison refuses, nor infinity."""

    name = "float range"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number, or refuse it."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


class AnyPath(click.Path):
    """A path without NUL characters."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """Return the path, or refuse one with NUL, which no file system allows."""
        if "\0" in str(value):
            raise ConfigError(f"no path can be called {shown(str(value))}", "leave the NUL character out")
        return super().convert(value, param, ctx)


class ExperimentCommand(click.Command):
    """A command that suggests ``--set`` when a component's option is used as its own option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line.

        Raises:
            ConfigError: The option belongs to a component or section, and needs ``--set``.
            NoSuchOption: No component or section has an option of that name.
        """
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            places = places_of(error.option_name.lstrip("-").replace("-", "_"))
            if not places:
                raise
            keys = " or ".join(f"--set {place}=VALUE" for place in places)
            raise ConfigError(f"no such option: {error.option_name}", f"did you mean {keys}?") from error


def experiment_options(command: F) -> F:
    """Add the argument and options that describe an experiment."""
    path = AnyPath(path_type=Path)
    decorators = [
        click.argument("file", metavar="[CONFIG.toml]", type=path, required=False),
        click.option(
            "--recommended",
            is_flag=True,
            help="The recommended method; it stands for: "
            + ", ".join(f"{key}={value}" for key, value in RECOMMENDED.items())
            + ".",
        ),
        *(
            option_of(run, kind, metavar="NAME", shell_complete=complete_component(kind))
            for kind in ("baseline", "policy", "retrieval")
        ),
        # from Python these two take objects, too
        _component("benchmark", "Task stream."),
        _component("backbone", "Backbone component, or any timm model."),
        option_of(
            run,
            "constraints",
            "--constraint",
            metavar="NAME",
            multiple=True,
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
        option_of(run, "weights", metavar="FILE", type=path),
        settings_option("Any option by its dotted key, such as growth.energy=0.99; repeatable."),
        click.option("--seed", callback=_parse_seed, metavar="N", help="Seed of everything random."),
        click.option("--seeds", callback=_parse_seeds, metavar="SEEDS", help="A run per seed: 0,1,2 or 0-4."),
        option_of(run, "out", metavar="DIR", type=path),
        click.option("--device", metavar="NAME", help="auto, cpu, mps, cuda or cuda:N."),
        devices_option("Processes of the run, each on its own device."),
        click.option("--precision", metavar="NAME", help="32-true or bf16-mixed."),
    ]
    for decorate in reversed(decorators):
        command = decorate(command)
    return command


def _component(kind: Kind, help_text: str) -> Callable[[F], F]:
    return click.option(f"--{kind}", metavar="NAME", help=help_text, shell_complete=complete_component(kind))


def _parse_seed(context: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    """Return a seed.

    Raises:
        BadParameter: It is not one whole number.
    """
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        listed = set(text or "") <= set("0123456789,-")
        several = f"; for several seeds: --seeds {text}" if listed else ""
        raise click.BadParameter(f"expected a whole number but got {shown(text)}{several}") from None


def _parse_seeds(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> tuple[int, ...] | None:
    """Return the seeds of a list such as ``0,1,2``, in which ``0-4`` stands for 0 to 4.

    Raises:
        BadParameter: It is not a list of different whole numbers of 0 to 2^63 - 1.
    """
    if text is None:
        return None
    ranges = [re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip()) for part in text.split(",")]
    bounds = [(int(found[1]), int(found[2] or found[1])) for found in ranges if found]
    if len(bounds) < len(ranges) or any(not 0 <= last - first < _MOST_SEEDS for first, last in bounds):
        raise click.BadParameter(f"expected whole numbers such as 0,1,2 or 0-4 but got {shown(text)}")
    seeds = tuple(seed for first, last in bounds for seed in range(first, last + 1))
    if not all(0 <= seed < 2**63 for seed in seeds):
        raise click.BadParameter(f"expected seeds of 0 to {2**63 - 1} but got {shown(seeds)}")
    if len(set(seeds)) != len(seeds):
        raise click.BadParameter(f"expected different seeds but got {shown(seeds)}")
    return seeds


def devices_option(help_text: str) -> Callable[[F], F]:
    """Return the option ``--devices N``, shared by all commands that run something."""
    return click.option("--devices", type=click.IntRange(min=1), metavar="N", help=help_text)


def settings_option(help_text: str, *, complete: bool = True) -> Callable[[F], F]:
    """Return the option ``--set KEY=VALUE``, shared by several commands.

    Args:
        help_text: The help of the option.
        complete: Whether the shell completes its keys with those of an experiment.
    """
    return click.option(
        "--set",
        "settings",
        metavar="KEY=VALUE",
        multiple=True,
        callback=settings_given,
        help=help_text,
        shell_complete=complete_setting if complete else None,
    )


def settings_given(
    context: click.Context, parameter: click.Parameter, texts: Sequence[str]
) -> dict[str, Any]:
    """Return what ``--set`` or ``--executor-set`` names; their callback.

    Raises:
        ConfigError: A text has no key or no equals sign.
    """
    return parse_settings(texts, parameter.opts[0])
