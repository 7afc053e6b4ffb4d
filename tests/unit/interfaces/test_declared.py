"""What classes of baselines and heads declare by name."""

from __future__ import annotations

import pytest

from lw2g.interfaces.baseline import Baseline
from lw2g.interfaces.component import BaselineComponent, HeadComponent, Lazy
from lw2g.interfaces.head import ClosedForm
from lw2g.registry.catalogue import load_catalogue


@pytest.mark.parametrize(
    ("base", "name", "meant"),
    [
        (ClosedForm, "exakt", "exact"),
        (ClosedForm, "class_row", "class_rows"),
        (ClosedForm, "likelyhood", "likelihood"),
        (Baseline, "learning_onli", "learning_only"),
        (Baseline, "trained_task", "trained_tasks"),
        (Baseline, "several_class", "several_classes"),
        (Baseline, "scop", "scope"),
    ],
)
def test_a_misspelt_declaration_is_refused_where_the_class_is_made(base: type, name: str, meant: str) -> None:
    """Nothing would read it, and the default would hold."""
    told = rf"^Mine: '{name}' is not read \(did you mean '{meant}'\?\); rename it"
    with pytest.raises(TypeError, match=told):
        type("Mine", (base,), {name: True})


@pytest.mark.parametrize("base", [ClosedForm, Baseline])
def test_attributes_of_its_own_stay_the_authors(base: type) -> None:
    """Further words, private names, methods, and what a base has."""
    own = {"exact_rows": 1, "scope_words": 2, "_exakt": True, "_scop": 1, "scop": lambda self: 1, "width": 3}
    type("Mine", (type("Base", (base,), own),), {"scop": 1})


def test_all_shipped_classes_can_be_made() -> None:
    """No attribute of theirs is taken for a misspelt one."""
    catalogue = load_catalogue()
    made = 0
    for kind, record in (("baseline", BaselineComponent), ("head", HeadComponent)):
        for name in catalogue.names(kind):
            component = catalogue.get(kind, name)
            assert isinstance(component, record)
            if isinstance(component.build, Lazy):
                component.build.load()
                made += 1
    assert made > 20
