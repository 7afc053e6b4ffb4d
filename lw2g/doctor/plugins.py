"""What the catalogue says of plugins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lw2g.doctor.finding import Finding, note, ok, problem
from lw2g.interfaces.component import Lazy
from lw2g.registry.catalogue import Catalogue, Registered, load_catalogue
from lw2g.registry.manager import DISABLE_VARIABLE, Problem, attempt

__all__ = ["plugin_findings"]


def plugin_findings(catalogue: Catalogue | None = None) -> Iterator[Finding]:
    """Yield what can be used, what is left out on request, and every problem with its remedy."""
    catalogue = load_catalogue() if catalogue is None else catalogue
    entries = catalogue.components()
    origins = {entry.origin.plugin: entry.origin for entry in entries}
    strangers = [str(origin) for origin in origins.values() if not origin.first_party]
    text = f"{len(entries)} components of {len(origins)} plugins"
    yield ok("plugins", f"{text}, not of lw2g itself: {', '.join(strangers)}" if strangers else text)
    if catalogue.disabled:
        text = f"{DISABLE_VARIABLE} leaves out {', '.join(catalogue.disabled)}"
        yield note("plugins", text, f"unset {DISABLE_VARIABLE} to use them")
    for one in (*catalogue.problems, *_unbuildable(entries)):
        yield problem("plugins", str(one).removesuffix(f"; {one.remedy}"), one.remedy)


def _unbuildable(entries: Sequence[Registered]) -> list[Problem]:
    """Import the code that records only name, which nothing does before a component is used."""
    problems: list[Problem] = []
    for entry in entries:
        build = getattr(entry.component, "build", None)
        if isinstance(build, Lazy):
            what = f"cannot build its {entry.component.kind} {entry.component.name!r}"
            attempt(build.load, entry.origin, what, problems)
    return problems
