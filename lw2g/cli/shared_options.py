"""Options that several commands share, and the experiment that those of ``run`` and ``config`` describe."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click
from click.shell_completion import CompletionItem

from lw2g.api import run
from lw2g.api.arguments import (
    METHODS,
    SHORT,
    RunConfig,
    folder_as_file,
    offered_settings,
    parse_settings,
    place_remedy,
    with_short,
    word_of_method,
)
from lw2g.api.experiment import experiment_of
from lw2g.api.plugins import meant_elsewhere, places_of
from lw2g.cli.completion import complete_component
from lw2g.cli.paths import AnyPath
from lw2g.cli.signature import Further, LongCommand, choices_of, field_option, meaning_of, option_of
from lw2g.errors import ConfigError, Lw2gError, as_word, shown
from lw2g.ground.spelling import expanded

if TYPE_CHECKING:
    from lw2g.api.experiment import Experiment
    from lw2g.interfaces.component import Kind
    from lw2g.model.trained import TrainedModel
    from lw2g.registry.catalogue import Catalogue

__all__ = [
    "USUAL_REJECT",
    "ExperimentCommand",
    "FiniteRange",
    "box_options",
    "can_reject",
    "component_option",
    "constraint_option",
    "experiment_options",
    "json_option",
    "settings_option",
    "typed_experiment",
    "typed_options",
]

F = TypeVar("F", bound=Callable[..., Any])
_MEANINGS = {
    "recommended": "The recommended method, which trains nothing: a chosen head on layers of one forward",
    "trained": "The method that trains, on the first task alone; after that as the recommended one",
}
_MOST_SEEDS = 1_000
"""In one range: beyond it, a digit too many was typed."""

_WORDS = "lw2g.words"
"""Where a context keeps what was typed behind its command."""


USUAL_REJECT = 0.05
"""The usual share of known images that may be called unknown."""


def can_reject(model: TrainedModel, rate: float = USUAL_REJECT) -> bool:
    """Return whether a model tells unknown images at a rate."""
    try:
        model.threshold(rate)
    except ConfigError:
        return False
    return True


def typed_options(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a command line says of an experiment, by dotted keys.

    Args:
        values: What click has parsed; a line that is still being typed lacks some of them.

    Raises:
        ConfigError: Two of ``--recommended``, ``--trained`` and ``--baseline`` name a baseline, or an option
            stands alone and behind ``--set``, or what is set there contradicts one.
    """
    options: dict[str, Any] = {}
    word = word_of_method(values, "--{}")
    if word:
        options = with_short(options, METHODS[word])
    settings = values.get("settings") or {}
    for name, dotted in {**SHORT, "seeds": SHORT["seed"], "orders": "benchmark.order_seed"}.items():
        if dotted in settings and values.get(name) is not None:
            raise ConfigError(f"{dotted} is given twice: as --{name} and as --set {dotted}", "leave one out")
    if values.get("orders") is not None and settings.get("benchmark.order") == "natural":
        raise ConfigError(
            "--orders draws class orders, and --set benchmark.order=natural none", "leave one out"
        )
    # what is typed overrides what such a word stands for
    options |= settings
    alone = {name: values.get(name) for name in (*SHORT, "trackers")}
    # none given leaves the policy its own
    alone["constraints"] = values.get("constraints") or None
    return with_short(options, alone)


def typed_experiment(values: Mapping[str, Any], catalogue: Catalogue | None = None) -> Experiment:
    """Put the experiment of a command line together.

    Args:
        values: As for :func:`typed_options`.
        catalogue: Where components are looked up; None for all that are installed.

    Raises:
        ConfigError: Something cannot be used.
    """
    file = values["file"]
    options = typed_options(values)
    if file is not None and file.is_dir():
        context = click.get_current_context()
        words = [word for word in context.meta[_WORDS] if expanded(word) != file]
        raise folder_as_file(file, options, f"lw2g {context.info_name}", shlex.join(words))
    return experiment_of(file, options, catalogue)


class FiniteRange(click.FloatRange):
    """A number in a range; never NaN, which no comparison refuses, nor infinity."""

    name = "float range"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number, or refuse it."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


class RejectRate(FiniteRange):
    """The share of known images that may be called unknown."""

    def __init__(self) -> None:
        super().__init__(0, 1, min_open=True, max_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the rate, or refuse it, as a model does."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            told = f"expected a rate between 0 and 1 but got {value}; 0.05 rejects 5 % of known"
            self.fail(told, param, ctx)


class ExperimentCommand(LongCommand):
    """A command that suggests ``--set`` when a component's option is used as its own option."""

    allow_extra_args = True  # they are refused below

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line.

        Raises:
            ConfigError: The option belongs to a component or section, and needs ``--set``; or the words are
                those of a folder of photos and its model.
            NoSuchOption: No component or section has an option of that name.
            UsageError: There are too many words.
        """
        ctx.meta[_WORDS] = tuple(args)
        try:
            further = super().parse_args(ctx, args)
            if further and not ctx.resilient_parsing:
                _refuse_words(ctx, [str(ctx.params["file"]), *further])
            return further
        except click.NoSuchOption as error:
            name = error.option_name.lstrip("-").replace("-", "_")
            what = f"no such option: {error.option_name}"
            if meant := meant_elsewhere(name):
                raise ConfigError(what, meant) from error
            places = places_of(name, [one.name for one in self.params if one.name is not None])
            if not places:
                raise
            offered = self._offered_beside(ctx, error.option_name)
            remedy = place_remedy(places, offered, "--set {}=VALUE", "did you mean {}?")
            raise ConfigError(what, remedy) from error

    def _offered_beside(self, ctx: click.Context, unknown: str) -> Collection[str]:
        """Return how ``--set`` may begin beside what else is typed; nothing where that is no experiment."""
        words = list(ctx.meta[_WORDS])
        place = [word.partition("=")[0] for word in words].index(unknown)
        is_apart = "=" not in words.pop(place)
        if is_apart and place < len(words) and not words[place].startswith("-"):
            del words[place]  # its value
        try:
            values = self.make_context(ctx.info_name, words, ctx.parent, resilient_parsing=True).params
            return offered_settings("", values.get("file"), typed_options(values))
        except (Lw2gError, click.UsageError):
            return ()


def _refuse_words(ctx: click.Context, words: Sequence[str]) -> NoReturn:
    """Refuse several words where one file is taken: of two that are no such files photos are meant.

    Raises:
        ConfigError: There are two that are no configurations.
        UsageError: There are others.
    """
    if ctx.info_name == "run" and len(words) == 2 and not any(word.endswith(".toml") for word in words):
        typed = " ".join(map(as_word, words))
        raise ConfigError(
            "lw2g run does a study, and takes options or one CONFIG.toml",
            f"a model of photos is made by: lw2g start {typed}",
        )
    ctx.fail(f"Got unexpected extra argument ({' '.join(words[1:])})")


def experiment_options(command: F) -> F:
    """Add the argument and options that describe an experiment."""
    path = AnyPath(path_type=Path)
    protocols = choices_of(RunConfig.__annotations__["protocol"])
    protocols.remove("auto")  # what holds without the option
    precisions = choices_of(RunConfig.__annotations__["precision"])
    decorators = [
        click.argument("file", metavar="[CONFIG.toml]", type=path, required=False),
        *(_method_option(word, meaning) for word, meaning in _MEANINGS.items()),
        component_option(run, "baseline"),
        component_option(run, "policy"),
        component_option(run, "retrieval", cls=Further),
        component_option(run, "benchmark"),
        component_option(run, "backbone"),
        constraint_option(run, cls=Further),
        option_of(
            run,
            "trackers",
            "--tracker",
            metavar="NAME",
            multiple=True,
            shell_complete=complete_component("tracker"),
            cls=Further,
        ),
        field_option(RunConfig, "protocol", type=click.Choice(protocols), cls=Further),
        option_of(run, "weights", metavar="FILE", type=path),
        settings_option(run, "options"),
        field_option(RunConfig, "seed", type=str, callback=_parse_seed, metavar="N"),
        # not from `cells_of`: one run needs nothing of sweeps, whose modules take their time
        click.option("--seeds", callback=_parse_seeds, metavar="0,1,2|0-4", help="A run per seed."),
        click.option(
            "--orders",
            callback=_parse_seeds,
            metavar="1,2,3|1-5",
            cls=Further,
            help="A run per class order; with --seeds per both.",
        ),
        option_of(run, "out", metavar="DIR", type=path),
        field_option(RunConfig, "device", cls=Further),  # which is found without it
        field_option(RunConfig, "devices", cls=Further),
        # what the configuration says of a wrong value says more than click would
        field_option(RunConfig, "precision", type=str, metavar=f"[{'|'.join(precisions)}]", cls=Further),
    ]
    # click lists first what is added last
    for decorate in reversed(decorators):
        command = decorate(command)
    return command


def _method_option(word: str, meaning: str) -> Callable[[F], F]:
    """Return the option of a word that stands for a method."""
    meant = ", ".join(f"{key}={value}" for key, value in METHODS[word].items())
    return click.option(f"--{word}", is_flag=True, help=f"{meaning}; it stands for: {meant}.")


def component_option(function: Callable[..., Any], kind: Kind, **settings: Any) -> Callable[[F], F]:
    """Return the option that names the component of a kind, from the parameter of that name.

    Args:
        function: As for :func:`~lw2g.cli.signature.option_of`.
        kind: The kind.
        **settings: As for :func:`~lw2g.cli.signature.option_of`.
    """
    return option_of(function, kind, metavar="NAME", shell_complete=complete_component(kind), **settings)


def constraint_option(function: Callable[..., Any], **settings: Any) -> Callable[[F], F]:
    """Return the option ``--constraint``, from the parameter ``constraints``.

    Args:
        function: As for :func:`~lw2g.cli.signature.option_of`.
        **settings: As for :func:`~lw2g.cli.signature.option_of`.
    """
    return option_of(
        function,
        "constraints",
        "--constraint",
        metavar="NAME",
        multiple=True,
        shell_complete=complete_component("constraint"),
        **settings,
    )


def box_options(function: Callable[..., Any]) -> Callable[[F], F]:
    """Return a decorator that adds ``--boxes`` and how a box becomes an image.

    Args:
        function: Says what its parameters ``boxes``, ``margin``, ``min_side`` and ``square`` are.
    """

    def decorate(command: F) -> F:
        # click lists first what is added last
        command = option_of(function, "square", "--square/--no-square", cls=Further)(command)
        command = option_of(
            function,
            "min_side",
            type=click.IntRange(min=0),
            metavar="PIXELS",
            cls=Further,
            show_default=False,
        )(command)
        command = option_of(
            function, "margin", type=FiniteRange(min=0), metavar="SHARE", cls=Further, show_default=False
        )(command)
        return option_of(function, "boxes")(command)

    return decorate


def json_option(help_text: str, **settings: Any) -> Callable[[F], F]:
    """Return the flag ``--json``, which prints what programs read.

    Args:
        help_text: What it prints.
        **settings: Further ones of :func:`click.option`.
    """
    return click.option("--json", "as_json", is_flag=True, help=help_text, **settings)


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
        several = ""
        if set(text) <= set("0123456789,-"):
            several = f"; for several seeds: --seeds {text}"
        raise click.BadParameter(f"expected a whole number but got {shown(text)}{several}") from None


def _parse_seeds(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> tuple[int, ...] | None:
    """Return the seeds of a list such as ``0,1,2``, in which ``0-4`` stands for 0 to 4.

    Raises:
        BadParameter: It is not a list of different whole numbers of 0 to 2^63 - 1, of orders to 2^32 - 1.
    """
    if text is None:
        return None
    listed: list[int] = []
    for part in text.split(","):
        several = _range_of(part.strip())
        if several is None:
            raise click.BadParameter(f"expected whole numbers such as 0,1,2 or 0-4 but got {shown(text)}")
        listed += several
    seeds = tuple(listed)
    beyond = 2**32 if parameter.name == "orders" else 2**63
    if not all(0 <= seed < beyond for seed in seeds):
        raise click.BadParameter(f"expected {parameter.name} of 0 to {beyond - 1} but got {shown(seeds)}")
    if len(set(seeds)) != len(seeds):
        raise click.BadParameter(f"expected different {parameter.name} but got {shown(seeds)}")
    return seeds


def _range_of(part: str) -> range | None:
    """Return the seeds of ``3`` or ``0-4``; None for anything else, and for more than anybody can mean."""
    found = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
    if found is None:
        return None
    first = int(found[1])
    last = int(found[2] or first)
    if not 0 <= last - first < _MOST_SEEDS:
        return None
    return range(first, last + 1)


def settings_option(
    function: Callable[..., Any],
    parameter: str = "settings",
    flag: str = "--set",
    *,
    called: str = "settings",
    complete: bool = True,
    **settings: Any,
) -> Callable[[F], F]:
    """Return an option ``KEY=VALUE``, from a parameter that maps options to values.

    Args:
        function: The function that has the parameter.
        parameter: The parameter.
        flag: How the option is spelled.
        called: The command's argument.
        complete: Whether the shell completes its keys with those of an experiment.
        **settings: Further ones of :func:`click.option`.
    """
    completer = None
    if complete:
        completer = _complete_setting
    return click.option(
        flag,
        called,
        metavar="KEY=VALUE",
        multiple=True,
        callback=_parse_settings,
        help=f"{meaning_of(function, parameter).removesuffix('.')}; repeatable.",
        shell_complete=completer,
        **settings,
    )


def _parse_settings(
    context: click.Context, parameter: click.Parameter, texts: Sequence[str]
) -> dict[str, Any]:
    """Return what ``--set`` or ``--executor-set`` names.

    Raises:
        ConfigError: A text has no key or no equals sign.
    """
    return parse_settings(texts, parameter.opts[0])


def _complete_setting(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Complete a key of ``--set``, or its value, from the options of the components named so far."""
    values = context.params
    try:
        offered = offered_settings(begun, values.get("file"), typed_options(values))
    except (Lw2gError, click.UsageError):  # an unfinished command line may not resolve
        return []
    return [CompletionItem(setting, help=meaning) for setting, meaning in offered.items()]
