"""What authors of plugins import: ``from lw2g.plugin import Baseline, hookimpl, lazy, option``.

These names are what lw2g promises to plugins, beside the functions of ``import lw2g``; the modules that
define them may move. A name is imported when it is asked for, so that importing this module imports neither
torch nor another module of lw2g. No module of lw2g imports it.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lw2g.blocks.adapters import AdapterBaseline as AdapterBaseline
    from lw2g.blocks.adapters import AdapterSet as AdapterSet
    from lw2g.blocks.adapters import bottlenecks as bottlenecks
    from lw2g.blocks.adapters import bottlenecks_of as bottlenecks_of
    from lw2g.blocks.carrying import CARRIES as CARRIES
    from lw2g.blocks.carrying import gated as gated
    from lw2g.blocks.chosen_head import ChosenHead as ChosenHead
    from lw2g.blocks.closed_form import Cosine as Cosine
    from lw2g.blocks.closed_form import factor as factor
    from lw2g.blocks.contrastive import self_identification_loss as self_identification_loss
    from lw2g.blocks.discriminants import Discriminant as Discriminant
    from lw2g.blocks.discriminants import KernelDiscriminant as KernelDiscriminant
    from lw2g.blocks.heads import CosineClassifier as CosineClassifier
    from lw2g.blocks.heads import HeadedBaseline as HeadedBaseline
    from lw2g.blocks.heads import closed_form as closed_form
    from lw2g.blocks.heads import fitting_phase as fitting_phase
    from lw2g.blocks.heads import linear_head as linear_head
    from lw2g.blocks.lora import Factors as Factors
    from lw2g.blocks.lora import LowRankSet as LowRankSet
    from lw2g.blocks.lora import LowRankSets as LowRankSets
    from lw2g.blocks.lora import inject_factors as inject_factors
    from lw2g.blocks.mahalanobis import Mahalanobis as Mahalanobis
    from lw2g.blocks.merging import interpolate as interpolate
    from lw2g.blocks.options import AdapterSetOptions as AdapterSetOptions
    from lw2g.blocks.options import HeadOptions as HeadOptions
    from lw2g.blocks.options import LowRankOptions as LowRankOptions
    from lw2g.blocks.options import PrefixOptions as PrefixOptions
    from lw2g.blocks.options import RandomFeatureOptions as RandomFeatureOptions
    from lw2g.blocks.options import ReplayOptions as ReplayOptions
    from lw2g.blocks.options import ScheduleOptions as ScheduleOptions
    from lw2g.blocks.options import SteppingOptions as SteppingOptions
    from lw2g.blocks.options import WeightedPrefixOptions as WeightedPrefixOptions
    from lw2g.blocks.options import blocks_option as blocks_option
    from lw2g.blocks.options import layers_option as layers_option
    from lw2g.blocks.options import pool_option as pool_option
    from lw2g.blocks.options import schedule_option as schedule_option
    from lw2g.blocks.options import targets_option as targets_option
    from lw2g.blocks.prefixes import PrefixSet as PrefixSet
    from lw2g.blocks.prefixes import PrefixSets as PrefixSets
    from lw2g.blocks.prefixes import inject_prefixes as inject_prefixes
    from lw2g.blocks.presets import PresetFile as PresetFile
    from lw2g.blocks.random_maps import RandomMap as RandomMap
    from lw2g.blocks.replay import Gradients as Gradients
    from lw2g.blocks.replay import head_replay as head_replay
    from lw2g.blocks.replay import logit_gradient as logit_gradient
    from lw2g.blocks.replay import replay_phase as replay_phase
    from lw2g.blocks.ridge import Ridge as Ridge
    from lw2g.blocks.schedules import chosen_schedule as chosen_schedule
    from lw2g.blocks.schedules import coda_cosine as coda_cosine
    from lw2g.blocks.schedules import cosine as cosine
    from lw2g.blocks.schedules import milestones as milestones
    from lw2g.blocks.schedules import stepped as stepped
    from lw2g.blocks.set_measures import entropy as entropy
    from lw2g.blocks.statistics import ClassStatistics as ClassStatistics
    from lw2g.blocks.statistics import cluster as cluster
    from lw2g.blocks.statistics import collect_features as collect_features
    from lw2g.blocks.statistics import held_back as held_back
    from lw2g.blocks.weighted_prefixes import ComponentSet as ComponentSet
    from lw2g.blocks.weighted_prefixes import WeightedPrefixBaseline as WeightedPrefixBaseline
    from lw2g.errors import ConfigError as ConfigError
    from lw2g.errors import ContractError as ContractError
    from lw2g.errors import DataError as DataError
    from lw2g.errors import counted as counted
    from lw2g.errors import error_text as error_text
    from lw2g.errors import nearest as nearest
    from lw2g.errors import no_folder as no_folder
    from lw2g.errors import printable as printable
    from lw2g.errors import shown as shown
    from lw2g.ground.spelling import composed as composed
    from lw2g.ground.spelling import expanded as expanded
    from lw2g.ground.texts import text_of as text_of
    from lw2g.interfaces.baseline import Baseline as Baseline
    from lw2g.interfaces.baseline import mask_logits as mask_logits
    from lw2g.interfaces.batch import Batch as Batch
    from lw2g.interfaces.carry import Carry as Carry
    from lw2g.interfaces.carry import CarryContext as CarryContext
    from lw2g.interfaces.carry import Motion as Motion
    from lw2g.interfaces.command import Command as Command
    from lw2g.interfaces.component import Alias as Alias
    from lw2g.interfaces.component import BackboneComponent as BackboneComponent
    from lw2g.interfaces.component import BaselineComponent as BaselineComponent
    from lw2g.interfaces.component import BenchmarkComponent as BenchmarkComponent
    from lw2g.interfaces.component import CarryComponent as CarryComponent
    from lw2g.interfaces.component import ConstraintComponent as ConstraintComponent
    from lw2g.interfaces.component import EvidenceComponent as EvidenceComponent
    from lw2g.interfaces.component import HeadComponent as HeadComponent
    from lw2g.interfaces.component import PolicyComponent as PolicyComponent
    from lw2g.interfaces.component import RetrievalComponent as RetrievalComponent
    from lw2g.interfaces.component import TrackerComponent as TrackerComponent
    from lw2g.interfaces.component import lazy as lazy
    from lw2g.interfaces.constraint import Constraint as Constraint
    from lw2g.interfaces.context import BuildContext as BuildContext
    from lw2g.interfaces.context import TaskContext as TaskContext
    from lw2g.interfaces.context import TaskInfo as TaskInfo
    from lw2g.interfaces.context import derive_seed as derive_seed
    from lw2g.interfaces.dataset import DEFAULT_ROOT as DEFAULT_ROOT
    from lw2g.interfaces.dataset import ROOT_VARIABLE as ROOT_VARIABLE
    from lw2g.interfaces.dataset import DataSet as DataSet
    from lw2g.interfaces.dataset import RemoteFile as RemoteFile
    from lw2g.interfaces.dataset import Split as Split
    from lw2g.interfaces.dataset import default_root as default_root
    from lw2g.interfaces.deviations import NEW_SETS_MERGED as NEW_SETS_MERGED
    from lw2g.interfaces.deviations import PLAIN_IMAGES as PLAIN_IMAGES
    from lw2g.interfaces.deviations import UNSEEN_MASKED as UNSEEN_MASKED
    from lw2g.interfaces.deviations import Deviation as Deviation
    from lw2g.interfaces.evidence import Candidate as Candidate
    from lw2g.interfaces.evidence import Measure as Measure
    from lw2g.interfaces.evidence import Sample as Sample
    from lw2g.interfaces.growth import Burden as Burden
    from lw2g.interfaces.growth import CandidateEvidence as CandidateEvidence
    from lw2g.interfaces.growth import Decision as Decision
    from lw2g.interfaces.growth import Evidence as Evidence
    from lw2g.interfaces.growth import Grow as Grow
    from lw2g.interfaces.growth import Measurement as Measurement
    from lw2g.interfaces.growth import Merge as Merge
    from lw2g.interfaces.growth import Reuse as Reuse
    from lw2g.interfaces.head import ClosedForm as ClosedForm
    from lw2g.interfaces.head import HeadContext as HeadContext
    from lw2g.interfaces.memory import SpaceOptions as SpaceOptions
    from lw2g.interfaces.metric import Metric as Metric
    from lw2g.interfaces.options import option as option
    from lw2g.interfaces.phase import ComputePhase as ComputePhase
    from lw2g.interfaces.phase import ParameterGroup as ParameterGroup
    from lw2g.interfaces.phase import Phase as Phase
    from lw2g.interfaces.phase import StepOutput as StepOutput
    from lw2g.interfaces.phase import TrainingPhase as TrainingPhase
    from lw2g.interfaces.pool import Pool as Pool
    from lw2g.interfaces.pool import Routing as Routing
    from lw2g.interfaces.retrieval import ClassRetrieval as ClassRetrieval
    from lw2g.interfaces.retrieval import RetrievalStrategy as RetrievalStrategy
    from lw2g.interfaces.scope import BACKBONE as BACKBONE
    from lw2g.interfaces.scope import EACH as EACH
    from lw2g.interfaces.scope import POOL as POOL
    from lw2g.interfaces.scope import SET_SHARED as SET_SHARED
    from lw2g.interfaces.site import Activation as Activation
    from lw2g.interfaces.site import Restriction as Restriction
    from lw2g.interfaces.site import Site as Site
    from lw2g.interfaces.stream import Contents as Contents
    from lw2g.interfaces.stream import ImageSource as ImageSource
    from lw2g.interfaces.stream import ImageTransform as ImageTransform
    from lw2g.interfaces.stream import IndexArray as IndexArray
    from lw2g.interfaces.stream import RandomTransform as RandomTransform
    from lw2g.interfaces.stream import ReadsFiles as ReadsFiles
    from lw2g.interfaces.stream import StagedTransform as StagedTransform
    from lw2g.interfaces.stream import Task as Task
    from lw2g.interfaces.stream import TaskData as TaskData
    from lw2g.interfaces.stream import TaskStream as TaskStream
    from lw2g.interfaces.tables import leaves as leaves
    from lw2g.interfaces.tables import make_record as make_record
    from lw2g.interfaces.tables import read_table as read_table
    from lw2g.interfaces.tracker import EpochEnded as EpochEnded
    from lw2g.interfaces.tracker import Event as Event
    from lw2g.interfaces.tracker import RunEnded as RunEnded
    from lw2g.interfaces.tracker import RunStarted as RunStarted
    from lw2g.interfaces.tracker import Stepped as Stepped
    from lw2g.interfaces.tracker import TaskDecided as TaskDecided
    from lw2g.interfaces.tracker import TaskEvaluated as TaskEvaluated
    from lw2g.interfaces.vectors import VectorFacts as VectorFacts
    from lw2g.maths.comparisons import Comparisons as Comparisons
    from lw2g.maths.comparisons import Spread as Spread
    from lw2g.maths.comparisons import half_samples as half_samples
    from lw2g.maths.comparisons import spread_over_halves as spread_over_halves
    from lw2g.maths.hindrance import energy_null_hfc as energy_null_hfc
    from lw2g.maths.hindrance import null_hfc as null_hfc
    from lw2g.maths.hindrance import over_sites as over_sites
    from lw2g.maths.hindrance import site_angles as site_angles
    from lw2g.maths.moments import SecondMoment as SecondMoment
    from lw2g.maths.subspace import Subspace as Subspace
    from lw2g.pixels.augmentation import CROP_DRAWS as CROP_DRAWS
    from lw2g.pixels.augmentation import brightened as brightened
    from lw2g.pixels.augmentation import crop_boxes as crop_boxes
    from lw2g.pixels.augmentation import resampled as resampled
    from lw2g.pixels.augmentation import shifted as shifted
    from lw2g.pixels.crops import Cutting as Cutting
    from lw2g.pixels.crops import read_crops as read_crops
    from lw2g.pixels.feature_files import FeatureFile as FeatureFile
    from lw2g.pixels.feature_files import open_features as open_features
    from lw2g.pixels.found_images import FoundImages as FoundImages
    from lw2g.pixels.found_images import domains_below as domains_below
    from lw2g.pixels.found_images import find_classes as find_classes
    from lw2g.pixels.found_images import find_images as find_images
    from lw2g.pixels.found_images import is_hidden as is_hidden
    from lw2g.pixels.found_images import named_folders as named_folders
    from lw2g.pixels.found_images import passed_over as passed_over
    from lw2g.pixels.found_images import split_folder as split_folder
    from lw2g.pixels.found_images import splits_in as splits_in
    from lw2g.pixels.image_files import Crop as Crop
    from lw2g.pixels.image_files import ImageHeader as ImageHeader
    from lw2g.pixels.image_files import examine_each as examine_each
    from lw2g.pixels.image_files import examine_image as examine_image
    from lw2g.pixels.image_files import pixels_of as pixels_of
    from lw2g.pixels.image_files import read_image as read_image
    from lw2g.pixels.preprocessing import AsStored as AsStored
    from lw2g.pixels.preprocessing import Preprocessing as Preprocessing
    from lw2g.pixels.resampling import channels_last as channels_last
    from lw2g.pixels.resampling import resize as resize
    from lw2g.pixels.stamps import stamp_of as stamp_of
    from lw2g.pixels.text_vectors import TextVectors as TextVectors
    from lw2g.pixels.text_vectors import class_sentence as class_sentence
    from lw2g.pixels.text_vectors import read_text_vectors as read_text_vectors
    from lw2g.pixels.text_vectors import task_sentence as task_sentence
    from lw2g.pixels.text_vectors import words as words
    from lw2g.pixels.text_vectors import write_vectors as write_vectors
    from lw2g.registry.markers import hookimpl as hookimpl
    from lw2g.runtime.telling import Telling as Telling
    from lw2g.vit.adapter import AdapterInjection as AdapterInjection
    from lw2g.vit.anatomy import Rung as Rung
    from lw2g.vit.anatomy import attention_of as attention_of
    from lw2g.vit.anatomy import block_at as block_at
    from lw2g.vit.anatomy import is_plain_attention as is_plain_attention
    from lw2g.vit.anatomy import linears_of as linears_of
    from lw2g.vit.backbone import Backbone as Backbone
    from lw2g.vit.fingerprint import BackboneFingerprint as BackboneFingerprint
    from lw2g.vit.hub_folder import weight_files as weight_files
    from lw2g.vit.injection import Injection as Injection
    from lw2g.vit.loading import load_backbone as load_backbone
    from lw2g.vit.loading import plain_model as plain_model
    from lw2g.vit.low_rank import LayerInjection as LayerInjection
    from lw2g.vit.low_rank import LinearLayer as LinearLayer
    from lw2g.vit.low_rank import LowRank as LowRank
    from lw2g.vit.low_rank import LowRankInjection as LowRankInjection
    from lw2g.vit.parameters import ParameterInjection as ParameterInjection
    from lw2g.vit.plain import PlainShape as PlainShape
    from lw2g.vit.pool_words import Layers as Layers
    from lw2g.vit.pool_words import PoolWord as PoolWord
    from lw2g.vit.taps import Tap as Tap
    from lw2g.vit.taps import TapKind as TapKind
    from lw2g.vit.tokens import TokenInjection as TokenInjection
    from lw2g.vit.weights import load_weights as load_weights
    from lw2g.vit.weights import weights_sha256 as weights_sha256

NAMES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "A plugin and its options": {
        "lw2g.registry.markers": ("hookimpl",),
        "lw2g.interfaces.component": ("lazy", "Alias"),
        "lw2g.interfaces.options": ("option",),
        "lw2g.blocks.options": ("blocks_option",),
        "lw2g.interfaces.deviations": ("Deviation", "NEW_SETS_MERGED", "UNSEEN_MASKED", "PLAIN_IMAGES"),
        "lw2g.blocks.presets": ("PresetFile",),
        "lw2g.interfaces.tables": ("read_table", "make_record", "leaves"),
        "lw2g.ground.texts": ("text_of",),
        "lw2g.ground.spelling": ("expanded", "composed"),
    },
    "Errors": {
        "lw2g.errors": (
            "ConfigError",
            "DataError",
            "ContractError",
            "counted",
            "nearest",
            "shown",
            "printable",
            "error_text",
            "no_folder",
        ),
    },
    "Baselines": {
        "lw2g.interfaces.component": ("BaselineComponent",),
        "lw2g.interfaces.baseline": ("Baseline", "mask_logits"),
        "lw2g.interfaces.context": ("BuildContext", "TaskContext", "TaskInfo", "derive_seed"),
        "lw2g.interfaces.batch": ("Batch",),
        "lw2g.interfaces.pool": ("Pool", "Routing"),
        "lw2g.interfaces.phase": ("Phase", "TrainingPhase", "ComputePhase", "ParameterGroup", "StepOutput"),
        "lw2g.interfaces.scope": ("BACKBONE", "SET_SHARED", "POOL", "EACH"),
    },
    "Sites": {
        "lw2g.interfaces.site": ("Site", "Activation"),
        "lw2g.vit.taps": ("Tap", "TapKind"),
        "lw2g.maths.moments": ("SecondMoment",),
        "lw2g.maths.subspace": ("Subspace",),
    },
    "What is injected": {
        "lw2g.vit.injection": ("Injection",),
        "lw2g.blocks.prefixes": ("inject_prefixes",),
        "lw2g.vit.tokens": ("TokenInjection",),
        "lw2g.vit.adapter": ("AdapterInjection",),
        "lw2g.vit.low_rank": ("LowRank", "LowRankInjection", "LinearLayer", "LayerInjection"),
        "lw2g.blocks.lora": ("inject_factors", "Factors"),
        "lw2g.vit.parameters": ("ParameterInjection",),
        "lw2g.vit.anatomy": ("attention_of", "block_at", "is_plain_attention", "linears_of"),
    },
    "Parts of baselines": {
        "lw2g.blocks.heads": (
            "HeadedBaseline",
            "linear_head",
            "CosineClassifier",
            "fitting_phase",
            "closed_form",
        ),
        "lw2g.blocks.chosen_head": ("ChosenHead",),
        "lw2g.blocks.options": (
            "HeadOptions",
            "RandomFeatureOptions",
            "PrefixOptions",
            "WeightedPrefixOptions",
            "LowRankOptions",
            "targets_option",
            "AdapterSetOptions",
        ),
        "lw2g.blocks.prefixes": ("PrefixSet", "PrefixSets"),
        "lw2g.blocks.weighted_prefixes": ("WeightedPrefixBaseline", "ComponentSet"),
        "lw2g.blocks.lora": ("LowRankSet", "LowRankSets"),
        "lw2g.blocks.merging": ("interpolate",),
        "lw2g.blocks.adapters": ("AdapterSet", "AdapterBaseline", "bottlenecks", "bottlenecks_of"),
        "lw2g.blocks.contrastive": ("self_identification_loss",),
        "lw2g.blocks.set_measures": ("entropy",),
    },
    "Schedules, statistics, replay": {
        "lw2g.blocks.options": ("ScheduleOptions", "SteppingOptions", "schedule_option", "ReplayOptions"),
        "lw2g.blocks.schedules": ("chosen_schedule", "cosine", "coda_cosine", "milestones", "stepped"),
        "lw2g.blocks.statistics": ("ClassStatistics", "collect_features", "cluster", "held_back"),
        "lw2g.blocks.replay": ("replay_phase", "head_replay", "Gradients", "logit_gradient"),
    },
    "Heads": {
        "lw2g.interfaces.component": ("HeadComponent",),
        "lw2g.interfaces.head": ("ClosedForm", "HeadContext"),
        "lw2g.blocks.closed_form": ("Cosine", "factor"),
        "lw2g.blocks.discriminants": ("Discriminant", "KernelDiscriminant"),
        "lw2g.blocks.mahalanobis": ("Mahalanobis",),
        "lw2g.blocks.ridge": ("Ridge",),
        "lw2g.blocks.random_maps": ("RandomMap",),
        "lw2g.pixels.text_vectors": (
            "TextVectors",
            "read_text_vectors",
            "write_vectors",
            "class_sentence",
            "task_sentence",
            "words",
        ),
    },
    "Carries": {
        "lw2g.interfaces.component": ("CarryComponent",),
        "lw2g.interfaces.carry": ("Carry", "CarryContext", "Motion"),
        "lw2g.blocks.carrying": ("CARRIES", "gated"),
    },
    "Retrieval": {
        "lw2g.interfaces.component": ("RetrievalComponent",),
        "lw2g.interfaces.retrieval": ("RetrievalStrategy", "ClassRetrieval"),
    },
    "Constraints": {
        "lw2g.interfaces.component": ("ConstraintComponent",),
        "lw2g.interfaces.constraint": ("Constraint",),
        "lw2g.interfaces.site": ("Restriction",),
        "lw2g.interfaces.memory": ("SpaceOptions",),
    },
    "Policies": {
        "lw2g.interfaces.component": ("PolicyComponent",),
        "lw2g.interfaces.growth": (
            "Evidence",
            "CandidateEvidence",
            "Measurement",
            "Decision",
            "Grow",
            "Reuse",
            "Merge",
            "Burden",
        ),
    },
    "Measures of evidence": {
        "lw2g.interfaces.component": ("EvidenceComponent",),
        "lw2g.interfaces.evidence": ("Measure", "Sample", "Candidate"),
        "lw2g.maths.comparisons": ("half_samples", "spread_over_halves", "Spread", "Comparisons"),
        "lw2g.maths.hindrance": ("site_angles", "over_sites", "null_hfc", "energy_null_hfc"),
    },
    "Commands": {
        "lw2g.interfaces.command": ("Command",),
    },
    "Metrics": {
        "lw2g.interfaces.metric": ("Metric",),
    },
    "Trackers": {
        "lw2g.interfaces.component": ("TrackerComponent",),
        "lw2g.interfaces.tracker": (
            "Event",
            "RunStarted",
            "TaskDecided",
            "EpochEnded",
            "Stepped",
            "TaskEvaluated",
            "RunEnded",
        ),
    },
    "Benchmarks": {
        "lw2g.interfaces.component": ("BenchmarkComponent",),
        "lw2g.interfaces.stream": (
            "TaskStream",
            "Task",
            "TaskData",
            "ImageSource",
            "ReadsFiles",
            "Contents",
            "IndexArray",
            "ImageTransform",
            "StagedTransform",
            "RandomTransform",
        ),
        "lw2g.pixels.preprocessing": ("Preprocessing", "AsStored"),
        "lw2g.pixels.resampling": ("resize", "channels_last"),
        "lw2g.pixels.augmentation": ("CROP_DRAWS", "crop_boxes", "resampled", "shifted", "brightened"),
        "lw2g.interfaces.vectors": ("VectorFacts",),
        "lw2g.pixels.feature_files": ("FeatureFile", "open_features"),
        "lw2g.pixels.found_images": (
            "FoundImages",
            "find_images",
            "find_classes",
            "named_folders",
            "domains_below",
            "passed_over",
            "split_folder",
            "splits_in",
            "is_hidden",
        ),
        "lw2g.pixels.image_files": (
            "Crop",
            "ImageHeader",
            "examine_each",
            "examine_image",
            "read_image",
            "pixels_of",
        ),
        "lw2g.pixels.crops": ("Cutting", "read_crops"),
        "lw2g.pixels.stamps": ("stamp_of",),
        "lw2g.runtime.telling": ("Telling",),
    },
    "Data sets": {
        "lw2g.interfaces.dataset": (
            "DataSet",
            "Split",
            "RemoteFile",
            "DEFAULT_ROOT",
            "ROOT_VARIABLE",
            "default_root",
        ),
    },
    "Backbones": {
        "lw2g.interfaces.component": ("BackboneComponent",),
        "lw2g.vit.backbone": ("Backbone",),
        "lw2g.vit.pool_words": ("PoolWord", "Layers"),
        "lw2g.blocks.options": ("pool_option", "layers_option"),
        "lw2g.vit.fingerprint": ("BackboneFingerprint",),
        "lw2g.vit.anatomy": ("Rung",),
        "lw2g.vit.loading": ("load_backbone", "plain_model"),
        "lw2g.vit.weights": ("load_weights", "weights_sha256"),
        "lw2g.vit.hub_folder": ("weight_files",),
        "lw2g.vit.plain": ("PlainShape",),
    },
}
"""The names, by what they are for and by the module that defines them."""

_MODULES: dict[str, str] = {}
for _part in NAMES.values():
    for _module, _names in _part.items():
        _MODULES |= dict.fromkeys(_names, _module)

if not TYPE_CHECKING:  # type checkers would take any name for one that exists

    def __getattr__(name: str) -> object:
        """Import a name from the module that defines it, once."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = getattr(importlib.import_module(_MODULES[name]), name)
        globals()[name] = found
        return found

    def __dir__() -> list[str]:
        return sorted(_MODULES)

    # without it a star would take those names alone that something has asked for before
    __all__ = sorted(_MODULES)
