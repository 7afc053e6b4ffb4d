"""How a run differs from the published method: options, presets, retrieval, and fixed differences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lw2g.config.protocols import differences
from lw2g.config.resolve import Resolved
from lw2g.config.structure import unstructure
from lw2g.config.toml import to_mapping
from lw2g.interfaces.options import published_differences
from lw2g.learning.session import Components
from lw2g.learning.session_parts import RunParts
from lw2g.registry.kinds import place_of

__all__ = ["list_deviations"]

Entry = dict[str, Any]

_EVIDENCE_ALONE = ("growth.evidence", "growth.centre")
"""Options without effect in a run that collects no evidence."""


def list_deviations(
    resolved: Resolved,
    parts: RunParts,
    components: Components,
    of_stream: Sequence[str],
    task_to_set: Sequence[int],
) -> list[Entry]:
    """Return one mapping ``{option, value, published, note}`` per difference.

    The published values are the authors' values for the benchmark where the baseline has them, else the
    value that each option declares. Components declare the differences that no option changes.

    Args:
        resolved: The configuration and its sources.
        parts: What learns.
        components: The records of what is used.
        of_stream: How the stream differs from the benchmark's own, in words.
        task_to_set: The pool's map so far.
    """
    return [
        *resolved.preset_differences,
        *_options(resolved, parts),
        *_retrieval(parts, components),
        *_standing(parts, components, task_to_set),
        *_stream(parts, of_stream),
        *_processes(parts),
    ]


def _options(resolved: Resolved, parts: RunParts) -> Iterator[Entry]:
    """Yield options that differ from their published value.

    What lw2g has tuned for data that the authors never ran is no difference, but another value than that is.
    """
    config = parts.config
    # sections that count in this run alone: others change nothing, whatever they say
    records = [(place_of(kind, choice.name), choice.config) for kind, choice in config.chosen()]
    if config.retrieval is not None or config.routing.expert != "none":
        records.append(("routing", config.routing))
    if parts.builds_spaces or parts.growth.collects_evidence:
        records.append(("growth", config.growth))
    changed = {path for path, _, _ in differences(resolved.preset_values, to_mapping(config))}
    expected = resolved.preset_values.keys() - changed
    expected.update(entry["option"] for entry in resolved.preset_differences)  # listed already
    if not parts.growth.collects_evidence:
        expected.update(_EVIDENCE_ALONE)
    for path, record in records:
        for entry in published_differences(record, path):
            if entry["option"] not in expected:
                yield {
                    **entry,
                    "value": unstructure(entry["value"]),
                    "published": unstructure(entry["published"]),
                }


def _retrieval(parts: RunParts, components: Components) -> Iterator[Entry]:
    """Yield the retrieval strategy where it is not the method's own."""
    chosen = parts.config.retrieval
    own_retrieval = components.baseline.retrieval
    if chosen is not None and chosen.name != own_retrieval:
        note = "not the method's own retrieval"
        if parts.retrieval is not None and parts.retrieval.control:
            note = "control row: retrieval is told the task"
        yield {"option": "retrieval", "value": chosen.name, "published": own_retrieval, "note": note}


def _standing(parts: RunParts, components: Components, task_to_set: Sequence[int]) -> Iterator[Entry]:
    """Yield the fixed differences that the components declare and that concern this run, each once."""
    applies = {
        "always": True,
        "reuse": not parts.growth.fixed and len(set(task_to_set)) < len(task_to_set),
        "spaces": parts.keeps_memory,
    }
    declared: dict[Any, None] = {}  # in their order, each once: several components may differ alike
    for component in components.every:
        declared.update(dict.fromkeys(component.deviations))
    for deviation in declared:
        if applies[deviation.when]:
            yield {
                "option": deviation.topic,
                "value": deviation.value,
                "published": deviation.published,
                "note": deviation.note,
            }


def _stream(parts: RunParts, notes: Sequence[str]) -> Iterator[Entry]:
    """Yield the differences between the stream and the benchmark's own."""
    for note in notes:
        yield {
            "option": "benchmark",
            "value": parts.config.benchmark.name,
            "published": None,
            "note": note,
        }


def _processes(parts: RunParts) -> Iterator[Entry]:
    """Yield the differences that splitting a batch over processes makes."""
    count = parts.config.run.devices
    if count > 1:
        note = "each process has a slice of a batch: draws differ, and losses over a batch are of a slice"
        yield {"option": "run.devices", "value": count, "published": 1, "note": note}
