"""Arguments of :func:`lw2g.run` as people write them, as names of components and options by dotted keys."""

from __future__ import annotations

import os
from collections.abc import Collection, Container, Mapping, Sequence
from pathlib import Path
from typing import Any

from lw2g.config.describe import OptionDescription, describe_experiment, meant_elsewhere, places_of, plain
from lw2g.config.directory import CONFIG, MANIFEST
from lw2g.config.layers import NAMED_BY, SECTIONS, SHORT, with_short
from lw2g.config.resolve import resolve
from lw2g.config.settings import RunConfig
from lw2g.config.toml import parse_value
from lw2g.errors import ConfigError, Lw2gError, as_word, nearest, no_folder, shown
from lw2g.ground.spelling import as_device, device_name, expanded
from lw2g.interfaces.component import Kind
from lw2g.interfaces.defaults import (
    FOLDER_BENCHMARK,
    GIVEN_BENCHMARK,
    METHODS,
    PHOTO_BACKBONE,
    TIMM_BACKBONE,
)
from lw2g.registry.catalogue import LOCAL, Catalogue, load_catalogue
from lw2g.registry.kinds import SINGLE

__all__ = [
    "METHODS",
    "SHORT",
    "SINGLE",
    "RunConfig",
    "as_options",
    "as_plain",
    "as_typed",
    "backbone_as_typed",
    "choice_of_word",
    "folder_as_file",
    "for_folder",
    "offered_settings",
    "parse_settings",
    "place_remedy",
    "with_short",
    "word_of_method",
]

_SHORT_FROM_PYTHON = {
    **{
        name: f"benchmark.{name}" for name in ("increment", "test_share", "split_seed", "order", "order_seed")
    },
    "epochs": "baseline.epochs",
}
"""What stands for itself as an argument alone: what a notebook sets most often."""
_OF_RUNS = (*METHODS, "config", "out", "tasks", "progress")
"""The arguments of :func:`lw2g.run` that are neither components nor options."""
_OF_PLUGINS = {
    **{key: section for section, option in NAMED_BY.items() for key in (section, option)},
    **dict.fromkeys(("metric", "metrics"), "metric"),
}
"""Arguments as which people give objects that only plugins bring, and the kind of each."""


def as_options(
    given: Mapping[Kind, Any],
    options: Mapping[str, Any],
    beside: Mapping[str, Any] | None = None,
    file: Path | None = None,
) -> dict[str, Any]:
    """Return the components and options of a call by their dotted keys.

    Args:
        given: By kind a name, an object, or ``{"name": ..., option: value}``; a benchmark may be a folder.
        options: Options by dotted keys, or by some names that stand without their section. They override
            those given with a component's name.
        beside: Names of constraints and trackers, which tell where an option without its section may stand.
        file: The TOML file, which does so, too.

    Raises:
        ConfigError: A mapping has no name, a folder is not there, or an argument is not known or given in
            two spellings.
    """
    names: dict[str, Any] = {}
    keyed: dict[str, Any] = {}
    for kind, choice in given.items():
        # splits of images have the names that a Hugging Face DatasetDict gives them
        splits = {"train", "test"} & choice.keys() if isinstance(choice, dict) else set()
        is_images = kind == "benchmark" and bool(splits)
        if is_images and "name" in choice:
            raise ConfigError(
                f"benchmark: a name, which lw2g's own have, and a split {max(splits)}, which images have",
                'write benchmark={"train": ..., "test": ...} for images, or {"name": ..., "option": ...}',
            )
        if isinstance(choice, dict) and not is_images:
            choice, options_of_choice = _name_and_options(kind, choice)
            keyed |= options_of_choice
        if kind == "benchmark":
            choice, place = _place_of(choice)
            keyed |= place
        names[kind] = choice
    # after those given with a component's name, which they override
    spelled = {SHORT[kind]: str(kind) for kind, choice in names.items() if choice is not None}
    for key, value in {**keyed, **options}.items():
        _require_no_object(key, value)
    for key, given_value in options.items():
        value = as_device(given_value) if _dotted(key) == SHORT["device"] else as_plain(given_value)
        if key in NAMED_BY and isinstance(value, str):
            meant = {NAMED_BY[key]: value}
            raise ConfigError(f"{key}: no such argument", f"write **{meant}")
        if not _is_known(key):
            others = {_dotted(other): one for other, one in options.items() if _is_known(other)}
            raise _unknown(key, {**keyed, **others}, {**names, **(beside or {})}, file)
        dotted = _dotted(key)
        if dotted in spelled:
            raise ConfigError(f"{dotted} is given twice: as {spelled[dotted]} and as {key}", "leave one out")
        spelled[dotted] = key
        keyed[dotted] = value
    return with_short(keyed, names)


def as_plain(value: Any) -> Any:
    """Return a value as files have it, with all that it holds; what none can have stays as it is.

    Options are compared, and written to files. Arrays and ranges are lists, numbers of numpy and torch are
    numbers, paths and devices texts.

    >>> as_plain({"seed": range(2), "benchmark.root": Path("photos")})
    {'seed': [0, 1], 'benchmark.root': 'photos'}
    """
    if isinstance(value, os.PathLike):  # a run's record, too, which is a mapping
        return os.fspath(value)
    if isinstance(value, Mapping):
        return {key: as_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | range):
        return [as_plain(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else device_name(value)


def word_of_method(given: Mapping[str, Any], spelled: str = "{}") -> str:
    """Return the word that stands for the method of a call; empty without one.

    Args:
        given: The arguments: which words are given, and ``baseline``.
        spelled: How one writes the argument ``{}``.

    Raises:
        ConfigError: There are two words, or one and a baseline.
    """
    words = [word for word in METHODS if given.get(word)]
    if len(words) > 1:
        named = " and ".join(map(spelled.format, words))
        raise ConfigError(f"{named} name a method each", "leave one out")
    if words and given.get("baseline") is not None:
        raise ConfigError(
            f"{spelled.format(words[0])} names the baseline", f"leave {spelled.format('baseline')} out"
        )
    return words[0] if words else ""


def choice_of_word(word: str) -> dict[str, Any]:
    """Return the baseline for which a word stands, as ``{"name": ..., option: value}``."""
    chosen = {}
    for key, value in METHODS[word].items():
        _, _, option = key.partition(".")
        chosen[option or "name"] = value
    return chosen


def _require_no_object(key: str, value: Any) -> None:
    """Refuse an object where a name stands for it.

    Raises:
        ConfigError: It is of a kind that only plugins bring.
    """
    kind = _OF_PLUGINS.get(key)
    first = value[0] if isinstance(value, list | tuple) and value else value
    is_builtin = type(first).__module__ == "builtins" and not callable(first)
    is_plain = is_builtin or isinstance(first, str | Mapping)
    if kind is not None and not is_plain:
        raise ConfigError(
            f"{key}: no object can be a {kind}",
            f"a {kind} of your own is a plugin: lw2g new-plugin NAME --kind {kind}",
        )


def _dotted(key: str) -> str:
    """Return the dotted key of an argument."""
    return SHORT.get(key) or _SHORT_FROM_PYTHON.get(key, key)


def _is_known(key: str) -> bool:
    """Return whether an argument is a dotted key, or one that stands for itself."""
    return "." in key or key in SHORT or key in _SHORT_FROM_PYTHON or key in SECTIONS


def _unknown(
    key: str, options: Mapping[str, Any], chosen: Mapping[str, Any], file: Path | None
) -> ConfigError:
    """Return the error of an argument that is none, with the ones that may be meant.

    Args:
        key: The argument.
        options: The other options.
        chosen: The components, by kind.
        file: The TOML file.
    """
    catalogue = load_catalogue()
    if meant := meant_elsewhere(key, catalogue):
        return ConfigError(f"{key}: no such argument", meant)
    hint = nearest(key, [*chosen, *SHORT, *_SHORT_FROM_PYTHON, *_OF_RUNS])
    remedy = 'options have dotted keys, as in **{"baseline.epochs": 3}'
    if places := places_of(key, catalogue):
        offered = _offered_beside(options, chosen, file)
        remedy = place_remedy(places, offered, '**{{"{}": ...}}', "write {}")
    return ConfigError(f"{key}: no such argument{hint}", remedy)


def _offered_beside(
    options: Mapping[str, Any], chosen: Mapping[str, Any], file: Path | None
) -> Collection[str]:
    """Return how settings may begin beside these choices; nothing where objects are, or these cannot be."""
    names = dict(chosen)
    if not isinstance(names["benchmark"], str | None):  # images
        names["benchmark"] = GIVEN_BENCHMARK
    if not all(isinstance(names[kind], str | None) for kind in SINGLE):
        return ()
    try:
        return offered_settings("", file, with_short(options, names))
    except Lw2gError:
        return ()


def place_remedy(places: Sequence[str], offered: Collection[str], written: str, meant: str) -> str:
    """Return which keys are meant by an option without its section: those of what is chosen, if any.

    Args:
        places: The keys of all options with its name.
        offered: How settings may begin beside what is chosen; empty where that is not known.
        written: How one writes a setting with the key ``{}``.
        meant: What is said of the keys that are meant, ``{}``.

    >>> place_remedy(["baseline.lr"], ["run.seed="], "--set {}=VALUE", "did you mean {}?")
    'nothing that is chosen here has it; of others: --set baseline.lr=VALUE'
    """
    fitting = [place for place in places if f"{place}=" in offered]
    keys = " or ".join(written.format(place) for place in fitting or places)
    if offered and not fitting:
        return f"nothing that is chosen here has it; of others: {keys}"
    return meant.format(keys)


def parse_settings(texts: Sequence[str], option: str = "--set") -> dict[str, Any]:
    """Return the options of ``KEY=VALUE`` texts by their keys.

    Args:
        texts: The texts.
        option: What they follow on the command line.

    Raises:
        ConfigError: A text has no key or no equals sign, or two have one key.
    """
    settings: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ConfigError(
                f"{option}: expected KEY=VALUE but got {shown(text)}", "write it like growth.energy=0.9"
            )
        key = key.strip()
        if key in settings:
            raise ConfigError(f"{key} is given twice behind {option}", "leave one out")
        settings[key] = parse_value(value.strip())
    return settings


def as_typed(choices: Mapping[str, Any]) -> str:
    """Return components and options as one types them behind ``lw2g run``.

    >>> as_typed({"baseline": "slca-plus-plus", "baseline.head": "lda"})
    '--baseline slca-plus-plus --set baseline.head=lda'
    """
    words = []
    for key, value in choices.items():
        if "." in key:
            words.append(f"--set {key}={as_word(value)}")
        else:
            words.append(f"--{key} {as_word(value)}")
    return " ".join(words)


def backbone_as_typed(chosen: Mapping[str, Any]) -> str:
    """Return a backbone and its weights as one types them; empty of an object of a program, or of none.

    Args:
        chosen: Its ``name``, ``weights`` and options.

    >>> backbone_as_typed({"name": "timm", "model": "vit.a", "weights": "w.pt"})
    '--backbone vit.a --weights w.pt'
    """
    name = chosen["name"]
    if name is None or name.startswith(LOCAL):
        return ""
    if name == TIMM_BACKBONE:
        name = chosen.get("model", name)
    given = {"backbone": name, "weights": chosen["weights"]}
    return as_typed({key: value for key, value in given.items() if value is not None})


def for_folder(folder: Path, given: Container[str], classes: int | None = None) -> dict[str, Any]:
    """Return the options under which a folder of photographs runs, but those that are given, by their keys.

    Args:
        folder: The folder, of ``<class>/*`` or of ``train/`` and ``test/`` with these below.
        given: Keys of options.
        classes: How many there are; None to count them.
    """
    from lw2g.pixels.found_images import named_folders, split_folder

    options: dict[str, Any] = {"benchmark": FOLDER_BENCHMARK, "benchmark.root": folder}
    options["backbone"] = PHOTO_BACKBONE
    train = split_folder(folder, "train")
    if not train.is_dir():
        options["benchmark.test_share"] = 0.2
    if classes is None:
        classes = len(named_folders(train if train.is_dir() else folder))
    # the most that divide the classes into tasks; a prime number of them into two tasks, one smaller
    steps = [step for step in range(2, min(classes, 11)) if classes % step == 0]
    if steps:
        options["benchmark.increment"] = steps[-1]
    elif classes > 3:
        options |= {"benchmark.increment": (classes + 1) // 2, "benchmark.uneven": "true"}
    elif classes:
        options["benchmark.increment"] = classes
    return {key: value for key, value in options.items() if SHORT.get(key, key) not in given}


def folder_as_file(folder: Path, given: Container[str], command: str, words: str) -> ConfigError:
    """Return the error of a folder in place of a TOML file, with the command that was meant.

    Args:
        folder: The folder: of photographs, as with ``lw2g start``, of a run or of a model.
        given: Keys of the options that were typed.
        command: The command that got it.
        words: What was typed beside the folder.
    """
    if (folder / CONFIG).is_file():
        return ConfigError(
            f"{str(folder)!r} is a run and no TOML file",
            f"go on with it: lw2g resume {as_word(folder)}, or run it anew: {command} "
            f"{as_word(folder / CONFIG)}",
        )
    if (folder / MANIFEST).is_file():
        return ConfigError(
            f"{str(folder)!r} is a model and no TOML file",
            f"ask it: lw2g predict {as_word(folder)} IMAGES, or teach it more: lw2g learn {as_word(folder)} "
            "FOLDER",
        )
    fitting = as_typed(for_folder(folder, given))
    return ConfigError(
        f"{str(folder)!r} is a folder and no TOML file",
        f"for a model of photos: lw2g start {as_word(folder)} MODEL; for a study of images: "
        f"{command} {fitting} {words}".strip(),
    )


def offered_settings(begun: str, file: Path | None, options: Mapping[str, Any]) -> dict[str, str]:
    """Return how ``KEY=VALUE`` may go on among the options of an experiment, each with its meaning.

    Args:
        begun: The beginning: of a key, or of a value behind its key.
        file: As ``config`` of :func:`lw2g.run`.
        options: What is said of the experiment so far, by dotted keys.

    Raises:
        Lw2gError: The components cannot be combined.
    """
    catalogue = load_catalogue()
    described = describe_experiment(resolve(catalogue, file=file, overrides=options).config)
    key, equals, _ = begun.partition("=")
    settings: dict[str, str] = {}
    if not equals:
        # the sign is completed with the key, so that the next request is for a value
        for name, option in described.items():
            settings[f"{name}="] = option.sentence()
    elif key in described:
        for value in _values_of(described[key], catalogue):
            settings[f"{key}={value}"] = ""
    return {setting: meaning for setting, meaning in settings.items() if setting.startswith(begun)}


def _values_of(option: OptionDescription, catalogue: Catalogue) -> Sequence[str]:
    """Return the values of an option, or examples: its default and its published value."""
    if option.component:
        values = list(option.choices)
        for entry in catalogue.components():
            if entry.component.kind == option.component:
                values.append(entry.component.name)
        return values
    if option.choices:
        return option.choices
    examples: dict[str, None] = {}  # each once: the published value is often the default
    for value in (option.default, option.published):
        if value is not None:
            examples[plain(value)] = None
    return tuple(examples)


def _name_and_options(kind: str, choice: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the component of ``{"name": ..., option: value}``, and its options by dotted keys.

    Raises:
        ConfigError: It has no name.
    """
    if choice.get("name") is None:
        raise ConfigError(
            f"{kind}: {shown(choice)} has no name", f'write {kind}={{"name": ..., "option": ...}}'
        )
    named_options = {
        f"{kind}.{option}": as_plain(value) for option, value in choice.items() if option != "name"
    }
    return choice["name"], named_options


def _place_of(benchmark: Any) -> tuple[Any, dict[str, Any]]:
    """Return the benchmark that reads a folder or a data set of the hub, and the option that names it."""
    if isinstance(benchmark, str) and benchmark.startswith("~"):
        benchmark = expanded(benchmark)
    # OWNER/NAME may be either: a folder that exists is meant before a data set of the hub
    looks_like_a_path = isinstance(benchmark, Path) or (isinstance(benchmark, str) and "/" in benchmark)
    if looks_like_a_path and (isinstance(benchmark, Path) or os.path.isdir(benchmark)):
        return FOLDER_BENCHMARK, {"benchmark.root": str(benchmark)}
    if looks_like_a_path:
        _require_of_the_hub(benchmark)
        return GIVEN_BENCHMARK, {"benchmark.hub": benchmark}
    if not isinstance(benchmark, str) or not os.path.isdir(benchmark):
        return benchmark, {}
    # a benchmark is meant before a folder that happens to have its name
    if benchmark in load_catalogue().names("benchmark"):
        return benchmark, {}
    return FOLDER_BENCHMARK, {"benchmark.root": benchmark}


def _require_of_the_hub(name: str) -> None:
    """Refuse what can only be meant for a folder, and is none.

    Raises:
        ConfigError: It is a path, or begins with a folder that is here.
    """
    owner, _, data_set = name.partition("/")  # as the hub calls it: OWNER/NAME
    is_a_path = "/" in data_set or owner in ("", ".", "..", "~")
    if is_a_path or os.path.isdir(owner):
        raise ConfigError(
            f"benchmark: {no_folder(name)}",
            "give a folder of train/CLASS/IMAGE and test/CLASS/IMAGE, or of CLASS/IMAGE with test_share=0.2",
        )
