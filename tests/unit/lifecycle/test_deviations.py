"""What a record lists as different from the published method, and when."""

from __future__ import annotations

import attrs
import pytest

from lw2g.interfaces.deviations import Deviation
from lw2g.lifecycle.named_deviations import list_deviations


def deviation(topic, when="always"):
    """Return a standing difference."""
    return Deviation(topic=topic, value="ours", published="theirs", note="a reason", when=when)


DECLARED = (deviation("a"), deviation("r", "reuse"), deviation("s", "spaces"))


def _deviations(resolved, session, task_to_set):
    """Return what is listed of a session."""
    notes = session.data.stream.deviations
    return list_deviations(resolved, session.parts, session.components, notes, task_to_set)


def topics(session, resolved, task_to_set, declared=DECLARED):
    """Return what is listed of declared differences, which two components share."""
    every = tuple(attrs.evolve(one, deviations=declared) for one in session.components.every[:2])
    components = attrs.evolve(session.components, every=every)
    found = _deviations(resolved, attrs.evolve(session, components=components), task_to_set)
    assert all(
        (entry["value"], entry["published"], entry["note"]) == ("ours", "theirs", "a reason")
        for entry in found
        if entry["option"] in "ars"
    )
    return [entry["option"] for entry in found if entry["option"] in "ars"]


@pytest.mark.parametrize(
    ("names", "task_to_set", "expected"),
    [
        ({"policy": "always"}, [0, 1, 2], ["a"]),
        ({"policy": "min"}, [0, 1, 2], ["a", "s"]),
        ({"policy": "min"}, [0, 0], ["a", "r", "s"]),
        ({"policy": "one", "constraints": ["none"]}, [0, 0], ["a", "r"]),
        ({"policy": "always", "constraints": ["orthogonal"]}, [0], ["a", "s"]),
        ({"policy": "always", "constraints": ["pgp"]}, [0, 1], ["a"]),
        ({"baseline": "l2p", "policy": "always"}, [0, 0], ["a"]),
    ],
)
def test_standing_differences_are_listed_once_and_where_they_apply(
    session_of, quick, names, task_to_set, expected
):
    """Sharing and spaces each bring their own; what two components declare is listed once."""
    assert topics(session_of(**names), quick(**names), task_to_set) == expected


UNSEEN, KEYS = "evaluation.unseen_classes", "retrieval.keys_of_future_tasks"
VALUES, IMAGES, MERGE = "sites.values", "spaces.images", "baseline.ensemble"


@pytest.mark.parametrize(
    ("baseline", "policy", "shared", "expected"),
    [
        ("dual-prompt", "always", False, {UNSEEN, KEYS}),
        ("dual-prompt", "min", True, {UNSEEN, KEYS, VALUES, IMAGES, "sites.g_prompt", "retrieval.keys"}),
        ("s-prompt-plus-plus", "min", False, {UNSEEN, KEYS, VALUES, IMAGES, "retrieval.keys"}),
        ("hide-prompt", "always", False, {UNSEEN}),
        ("hide-prompt", "min", False, {UNSEEN, VALUES, IMAGES}),
        ("hide-prompt", "min", True, {UNSEEN, VALUES, IMAGES, MERGE}),
        ("hide-lora", "min", True, {UNSEEN, IMAGES, MERGE}),
        ("coda-prompt", "always", False, set()),
        ("os-prompt", "min", True, {VALUES, IMAGES}),
        ("cprompt", "min", True, {IMAGES, "baseline.weight_decay"}),
        ("inflora", "min", True, {IMAGES}),
        ("c-lora", "always", False, set()),
        ("l2p", "always", False, {UNSEEN}),
        ("one-prompt", "always", False, set()),
        ("aper-adapter", "always", False, set()),
        ("no-prompt", "always", False, set()),
    ],
)
def test_what_each_method_declares(session_of, quick, baseline, policy, shared, expected):
    """The published baseline lists what its own release does otherwise; LW2G on it lists what LW2G's does."""
    small = {"baseline.components": 3} if baseline in ("coda-prompt", "os-prompt") else {}
    names = {"baseline": baseline, "policy": policy}
    session, resolved = session_of(small, **names), quick(small, **names)
    assert session.parts.growth.fixed == (baseline in ("l2p", "one-prompt", "aper-adapter", "no-prompt"))
    topics = {deviation.topic for component in session.components.every for deviation in component.deviations}
    found = {entry["option"] for entry in _deviations(resolved, session, [0, 0] if shared else [0, 1])}
    assert found & topics == expected


@pytest.mark.parametrize(
    ("baseline", "option", "repaired", "released"),
    [
        ("tuna", "second", "universal", "newest"),
        ("tuna", "align_schedule", "cosine", "cosine-5"),
        ("tuna", "decay_order", "age", "released"),
        ("sd-lora", "boundary", "carry", "reset"),
        ("sema", "distance", "signed", "absolute"),
        ("sema", "unit", "task", "batch"),
        ("inflora", "design", "pcp", "pc"),
        ("mos", "merging", "once", "released"),
    ],
)
def test_a_repair_of_the_release_is_listed_and_so_is_its_letter(
    session_of, quick, baseline, option, repaired, released
):
    """The authors' figures come from the release: a run says in one entry which of the two it is, and why."""
    notes = []
    for value, published in ((repaired, released), (released, None)):
        chosen, names = {f"baseline.{option}": value}, {"baseline": baseline, "policy": "always"}
        found = _deviations(quick(chosen, **names), session_of(chosen, **names), [0])
        (entry,) = [entry for entry in found if entry["option"] == f"baseline.{option}"]
        assert (entry["value"], entry["published"]) == (value, published)
        notes.append(entry["note"])
    assert notes[0] == notes[1] != "differs from the published method"


def test_options_of_evidence_are_listed_where_evidence_is_collected(session_of, quick):
    """PGP builds spaces, but nothing is measured before a decision."""
    for names, listed in (({"policy": "always", "constraints": ["pgp"]}, False), ({"policy": "min"}, True)):
        overrides = {"growth.centre": True, "growth.energy_power": 4}
        found = _deviations(quick(overrides, **names), session_of(overrides, **names), [0])
        options = {entry["option"] for entry in found}
        assert ("growth.centre" in options) == listed
        assert "growth.energy_power" in options


@pytest.mark.parametrize(
    ("retrieval", "note"),
    [
        (None, None),
        ("centroids", "not the method's own retrieval"),
        ("oracle", "control row: retrieval is told the task"),
    ],
)
def test_a_retrieval_in_place_of_the_methods_own_is_listed(session_of, quick, retrieval, note):
    """Its name, the method's own, and whether it is a control."""
    names = {"policy": "always"} | ({"retrieval": retrieval} if retrieval else {})
    found = _deviations(quick(**names), session_of(**names), [0])
    entries = [entry for entry in found if entry["option"] == "retrieval"]
    expected = {"option": "retrieval", "value": retrieval, "published": "key-cosine", "note": note}
    assert entries == ([expected] if retrieval else [])


def test_differences_from_a_preset_come_first_and_once(session_of, quick):
    """An option that the authors' preset sets is compared with the preset, not with its general value."""
    resolved = quick({"baseline.length": 4}, policy="always")
    preset = {"option": "baseline.length", "value": 4, "published": 5, "note": "n"}
    resolved = attrs.evolve(
        resolved,
        preset_values={"baseline.length": 5, "baseline.epochs": 2},
        preset_differences=[preset],
    )
    found = _deviations(resolved, session_of({"baseline.length": 4}, policy="always"), [0])
    assert [entry for entry in found if entry["option"].startswith("baseline.length")] == [preset]
    assert found[0] == preset


@pytest.mark.parametrize(("value", "is_listed"), [(2, False), (7, True), (20, False)])
def test_only_another_value_than_a_tuned_one_is_listed(session_of, quick, value, is_listed):
    """A value that lw2g has tuned for small data is none of the user's doing; one that the user sets is."""
    option, published = "baseline.length", 20
    chosen = {option: value}
    resolved = attrs.evolve(quick(chosen, policy="always"), preset_values={option: 2})
    found = _deviations(resolved, session_of(chosen, policy="always"), [0])
    note = "differs from the published method"
    entry = {"option": option, "value": value, "published": published, "note": note}
    assert [entry for entry in found if entry["option"] == option] == ([entry] if is_listed else [])
