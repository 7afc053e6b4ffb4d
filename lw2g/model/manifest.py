"""What a trained model is made of, written down: all that an answer depends on except the learned state.

A run notes it in every checkpoint, with its configuration, an export in ``model.json``. Whoever opens either
reads one :class:`Manifest`, and needs neither data nor the components that only learning needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import attrs
from attrs.validators import and_, deep_iterable, ge, gt, le, max_len, min_len

from lw2g.config.named import named_by
from lw2g.config.settings import (
    FORMER_RUN_OPTIONS,
    BackboneChoice,
    Chosen,
    ModelConfig,
    RoutingConfig,
    RunConfig,
    require_device,
)
from lw2g.config.structure import NONE, structure
from lw2g.disk.origins import ComponentOrigin
from lw2g.errors import ConfigError, DataError, PluginError, UnknownComponentError, counted, shown
from lw2g.ground.spelling import composed_list
from lw2g.interfaces.classes import ClassMap
from lw2g.interfaces.component import Kind
from lw2g.interfaces.context import TaskInfo
from lw2g.model.parts import ModelParts
from lw2g.pixels.preprocessing import Preprocessing
from lw2g.pixels.resampling import Interpolation
from lw2g.registry.catalogue import LOCAL, Catalogue
from lw2g.vit.backbone import BackboneFingerprint

__all__ = ["Candidate", "Learning", "Manifest", "Step", "TaskNote", "described", "sections"]


@attrs.frozen(kw_only=True)
class Section:
    """A component with its options."""

    name: str
    options: dict[str, Any]


@attrs.frozen(kw_only=True)
class BackboneSection(Section):
    """The backbone, and the file that its weights were read from; None where it comes by them itself."""

    image_size: int | None = None
    weights: str | None = None


@attrs.frozen(kw_only=True)
class TaskNote:
    """A task that was learned, as checkpoints and exports have it; :class:`TaskInfo` is what travels.

    Attributes:
        class_names: The names of its classes.
        num_images: The number of its training images.
        targets: The target of each class; None where targets are positions.
        domain: Its domain; empty where there is one alone.
    """

    class_names: list[str] = attrs.field(converter=composed_list, validator=min_len(1))
    num_images: int
    targets: list[int] | None = None
    domain: str = ""

    @classmethod
    def of(cls, info: TaskInfo) -> TaskNote:
        """Return what is written of a task."""
        return cls(
            class_names=list(info.class_names),
            num_images=info.num_images,
            targets=None if info.targets == info.classes else list(info.targets),
            domain=info.domain,
        )

    def info(self, index: int, first: int) -> TaskInfo:
        """Return what is known of the task.

        Args:
            index: Its place among the tasks.
            first: The position of its first class.
        """
        seen = first + len(self.class_names)
        positions = tuple(range(first, seen))
        return TaskInfo(
            index=index,
            classes=positions,
            class_names=tuple(self.class_names),
            seen=seen,
            num_images=self.num_images,
            targets=positions if self.targets is None else tuple(self.targets),
            domain=self.domain,
        )

    def as_mapping(self) -> dict[str, Any]:
        """Return it JSON-able, without what is as it mostly is."""
        # written out: a checkpoint has the notes of all tasks, and `attrs.asdict` takes ten times as long
        mapping: dict[str, Any] = {"class_names": list(self.class_names), "num_images": self.num_images}
        if self.targets is not None:
            mapping["targets"] = list(self.targets)
        if self.domain:
            mapping["domain"] = self.domain
        return mapping


@attrs.frozen(kw_only=True)
class TransformNumbers:
    """A test transform as numbers."""

    size: int = attrs.field(validator=ge(1))
    resize: Literal["squash", "crop"]
    interpolation: Interpolation
    mean: list[float] = attrs.field(validator=[min_len(3), max_len(3), deep_iterable(and_(ge(0), le(1)))])
    std: list[float] = attrs.field(validator=[min_len(3), max_len(3), deep_iterable(and_(gt(0), le(1)))])


@attrs.frozen(kw_only=True)
class Step:
    """What a model has learned at once since it was exported.

    Attributes:
        time: When, in UTC.
        lw2g: The version.
        parent: SHA-256 of the state it started from; empty where it started from nothing.
        classes: Names of the classes.
        images: Number of images of each.
        digest: SHA-256 over the sorted checksums of all image files; empty where a class was forgotten since.
        checks: What was measured and estimated then.
    """

    time: str
    lw2g: str
    parent: str
    classes: list[str] = attrs.field(converter=composed_list)
    images: list[int]
    digest: str
    checks: dict[str, Any]


@attrs.frozen(kw_only=True)
class Candidate:
    """A head that a model may have: what it would be made of in place of its own.

    Attributes:
        baseline: Options of the method, which name the head.
        head: Options of the head, by its name.
        layers: Of how many of the backbone's last layers its features are.
        units: Random units beside these; 0 for none.
    """

    baseline: dict[str, Any]
    head: dict[str, dict[str, Any]]
    layers: int = attrs.field(validator=ge(1))
    units: int = 0


@attrs.frozen(kw_only=True)
class Learning:
    """The history of a model that goes on learning.

    Attributes:
        tasks: Tasks that were learned before the first step; one task a step follows.
        num_tasks: Tasks that the model was built for before the first step.
        num_classes: Classes likewise.
        names: The class of each number; a number is never given twice.
        numbers: The number of each target; those of forgotten classes are missing.
        steps: The steps.
        forgotten: When a class was forgotten, in UTC, by its number; not noted by an earlier lw2g.
        candidates: Heads among which each step chooses, from the smallest to the largest; empty where the
            head stays as it is.
    """

    tasks: int
    num_tasks: int
    num_classes: int
    names: list[str] = attrs.field(converter=composed_list)
    numbers: list[int]
    steps: list[Step] = attrs.field(factory=list)
    forgotten: dict[str, str] = attrs.field(factory=dict)
    candidates: list[Candidate] = attrs.field(factory=list)


def _one_for_each_task(manifest: Manifest, field: attrs.Attribute[Any], value: list[int]) -> None:
    if len(value) != len(manifest.tasks) or min(value, default=0) < 0:
        raise ValueError(
            f"expected a set for each of {counted(len(manifest.tasks), 'task')} but got {shown(value)}"
        )


def _of_the_backbone(manifest: Manifest, field: attrs.Attribute[Any], value: TransformNumbers | None) -> None:
    side = manifest.fingerprint.image_size
    if value is not None and value.size != side:
        raise ValueError(
            f"expected images of {side} pixels, as the backbone takes them, but got {value.size}"
        )


@attrs.frozen(kw_only=True)
class Manifest:
    """What a model is made of.

    Attributes:
        baseline: The method.
        retrieval: None where it makes no hard choice of a set.
        backbone: The frozen backbone.
        benchmark: What makes the test transform where it is no numbers.
        routing: The options of that section.
        run: Those of the section ``run`` that an answer depends on.
        num_tasks: Tasks of the whole stream.
        num_classes: Classes of the whole stream.
        tasks: The learned tasks.
        task_to_set: The set of each.
        preprocessing: The test transform as numbers; None where it is made of functions.
        weights_name: The backbone as people call it.
        fingerprint: The backbone's.
        state: SHA-256 of its weights as they computed, whatever file they came from; None where unknown.
        components: Who offers what is used, as far as it is known.
        learned_from: Name and fingerprint of the stream.
        files: Of an export: SHA-256 of its other files.
        learning: Of an export that can learn: its history; else None.
        head: Options of the heads that the method uses, by name; a model of an earlier lw2g tells of none.
        carry: Options of its carries likewise.
        choice: ``head`` and ``layers``, with ``units`` if any, that a head has taken which chooses by itself;
            a model of an earlier lw2g tells of none.
    """

    baseline: Section
    retrieval: Section | None = None
    backbone: BackboneSection
    benchmark: Section | None = None
    routing: dict[str, Any]
    run: dict[str, Any]
    num_tasks: int
    num_classes: int
    tasks: list[TaskNote]
    task_to_set: list[int] = attrs.field(validator=_one_for_each_task)
    preprocessing: TransformNumbers | None = attrs.field(validator=_of_the_backbone)
    weights_name: str
    fingerprint: BackboneFingerprint
    state: str | None = None
    components: list[ComponentOrigin] = attrs.field(factory=list)
    learned_from: dict[str, str] = attrs.field(factory=dict)
    files: dict[str, str] = attrs.field(factory=dict)
    learning: Learning | None = None
    head: dict[str, dict[str, Any]] = attrs.field(factory=dict)
    carry: dict[str, dict[str, Any]] = attrs.field(factory=dict)
    choice: dict[str, Any] = attrs.field(factory=dict)

    @property
    def infos(self) -> tuple[TaskInfo, ...]:
        """What is known of each learned task."""
        infos = []
        first = 0
        for index, task in enumerate(self.tasks):
            info = task.info(index, first)
            infos.append(info)
            first = info.seen
        return tuple(infos)

    @property
    def class_map(self) -> ClassMap:
        """Position, target and name of the learned classes; their numbers where the model has a history."""
        return ClassMap.of(self.infos, None if self.learning is None else tuple(self.learning.numbers))

    @property
    def history(self) -> Learning:
        """What it has learned since it was made; of a model that keeps no such history an empty one."""
        if self.learning is not None:
            return self.learning
        names = list(self.class_map.target_names)
        return Learning(
            tasks=len(self.tasks),
            num_tasks=self.num_tasks,
            num_classes=self.num_classes,
            names=names,
            numbers=list(range(len(names))),
        )

    @property
    def num_base_classes(self) -> int:
        """The number of class positions before the first step."""
        return sum(len(task.class_names) for task in self.tasks[: self.history.tasks])

    def as_candidate(self, units: int = 0) -> Candidate:
        """Return what tells the model from others of the same backbone."""
        return Candidate(
            baseline=self.baseline.options, head=self.head, layers=self.fingerprint.layers, units=units
        )

    def with_candidate(self, candidate: Candidate) -> Manifest:
        """Return the model with another head; its fingerprint is still the old one."""
        backbone = self.backbone
        if candidate.layers != self.fingerprint.layers:
            backbone = attrs.evolve(backbone, options={**backbone.options, "layers": candidate.layers})
        return attrs.evolve(
            self,
            baseline=attrs.evolve(self.baseline, options=candidate.baseline),
            head=candidate.head,
            backbone=backbone,
            choice={},
        )

    def config(
        self, catalogue: Catalogue, *, device: str | None, batch_size: int | None, weights: Path | None
    ) -> ModelConfig:
        """Return the configuration of the model.

        Args:
            catalogue: Where components come from.
            device: In place of what is written; likewise the others.
            batch_size: Images per forward.
            weights: The backbone's weights.

        Raises:
            DataError: A component is not installed.
            ConfigError: An option is no longer there.
        """
        if device is not None:
            require_device(device)
        chosen = {"device": device, "evaluation_batch": batch_size}
        run = {name: value for name, value in self.run.items() if name not in FORMER_RUN_OPTIONS}
        run |= {name: value for name, value in chosen.items() if value is not None}
        backbone = self.chosen("backbone", self.backbone, catalogue)
        # None of both: the backbone comes by its weights itself, or the export has them inside
        if weights is None and self.backbone.weights is not None:
            weights = Path(self.backbone.weights)
        baseline = self.chosen("baseline", self.baseline, catalogue)
        return ModelConfig(
            baseline=baseline,
            head=self._named_by(baseline, "head", self.head, catalogue),
            carry=self._named_by(baseline, "carry", self.carry, catalogue),
            retrieval=None if self.retrieval is None else self.chosen("retrieval", self.retrieval, catalogue),
            backbone=BackboneChoice(
                name=backbone.name,
                config=backbone.config,
                weights=weights,
                image_size=self.backbone.image_size,
            ),
            routing=_record(RoutingConfig, self.routing, "lw2g"),
            run=_record(RunConfig, run, "lw2g"),
        )

    def _named_by(
        self, baseline: Chosen, kind: Kind, options: Mapping[str, dict[str, Any]], catalogue: Catalogue
    ) -> tuple[Chosen, ...]:
        """Return the components of a kind that the baseline's options name."""
        chosen = []
        for name in named_by(baseline.config, kind, catalogue):
            section = Section(name=name, options=options.get(name, {}))
            chosen.append(self.chosen(kind, section, catalogue))
        return tuple(chosen)

    def chosen(self, kind: Kind, section: Section, catalogue: Catalogue) -> Chosen:
        """Return a component with its options.

        Raises:
            DataError: It is not installed.
            ConfigError: It has other options.
        """
        origin = self.made_with(kind, section)
        try:
            component = catalogue.get(kind, section.name)
        except PluginError as error:  # says whose it is, and what to do
            raise DataError(error.what, error.remedy) from error
        except UnknownComponentError as error:
            # an object of a program can be given again, and not installed
            remedy = error.remedy if section.name.startswith(LOCAL) else f"install it ({error})"
            raise DataError(f"{origin} cannot be used here", remedy) from error
        return Chosen(name=component.name, config=_record(component.config, section.options, origin))

    def made_with(self, kind: Kind, section: Section) -> str:
        """Return a component with its origin, for people."""
        for origin in self.components:
            if (origin.kind, origin.name) == (kind, section.name):
                whose = f"plugin {origin.plugin!r}"
                if origin.distribution is not None:
                    whose += f", {origin.distribution} {origin.version}"
                return f"{kind} {origin.name!r} ({whose})"
        return f"{kind} {section.name!r}"


def described(parts: ModelParts) -> dict[str, Any]:
    """Return what a configuration does not say of a model, JSON-able and by the names in a manifest."""
    context = parts.baseline.context
    numbers = None
    if isinstance(parts.still, Preprocessing):
        numbers = attrs.asdict(parts.still, filter=lambda field, _: field.init)
    return {
        "num_tasks": context.num_tasks,
        "num_classes": context.num_classes,
        "preprocessing": numbers,
        "weights_name": parts.backbone.name,
        "fingerprint": attrs.asdict(parts.backbone.fingerprint),
    }


def sections(written: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sections of ``config.toml`` that a manifest has, as it has them."""
    tables = {}
    for name in ("routing", "run", "head", "carry"):
        if name in written:
            tables[name] = dict(written[name])
    for kind in ("baseline", "retrieval", "backbone", "benchmark"):
        if kind not in written:
            continue
        # a file has these in one table with the component's own options; a backbone has more of them
        options = dict(written[kind])
        table: dict[str, Any] = {}
        for name in ("name", "weights", "image_size") if kind == "backbone" else ("name",):
            value = options.pop(name, NONE)
            table[name] = None if value == NONE else value
        tables[kind] = {**table, "options": options}
    return tables


def _record(cls: type[Any], options: Mapping[str, Any], origin: str) -> Any:
    value, problems = structure(cls, options)
    if problems:
        text = ", ".join(f"{key}: {what}" for key, what in problems)
        raise ConfigError(text, f"the model was made with another version of {origin}: install that")
    return value
