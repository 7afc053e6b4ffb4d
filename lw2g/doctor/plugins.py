"""What the catalogue says of plugins."""

from __future__ import annotations

from collections.abc import Iterator

from lw2g.doctor.finding import Finding, note, ok, problem
from lw2g.registry.catalogue import Catalogue, load_catalogue
from lw2g.registry.manager import DISABLE_VARIABLE

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
    for one in catalogue.problems:
        yield problem("plugins", str(one).removesuffix(f"; {one.remedy}"), one.remedy)
