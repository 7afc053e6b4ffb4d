"""Write the table of docs/backbones.md from small random models: which injections each family takes.

python scripts/write_backbones.py
"""

from __future__ import annotations

import sys
from pathlib import Path

from lw2g.errors import ConfigError
from lw2g.vit.backbone import Backbone
from lw2g.vit.pooling import offered_pools

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests" / "support"))

from timm_families import FAMILIES, RUNGS, Family, build_family, probes  # noqa: E402

PAGE = ROOT / "docs" / "backbones.md"
BEGIN, END = "<!-- begin: scripts/write_backbones.py -->", "<!-- end -->"


def answer(backbone: Backbone, rung: str) -> str:
    """Return ``yes`` if a probe can be made and installed, else ``-``."""
    try:
        probe = probes(backbone)[rung]()
        with probe.injection.install(backbone.model):
            return "yes"
    except ConfigError:
        return "-"


def facts(family: Family) -> tuple[str, str, str]:
    """Return a family's feature, the pools that it offers, and what it takes."""
    backbone = build_family(family)
    pools = [pool for pool in offered_pools(backbone.model) if pool != "default"]
    feature = backbone.fingerprint.pool
    refused = [rung for rung in RUNGS if answer(backbone, rung) != "yes"]
    takes = "none"
    if len(refused) < len(RUNGS):
        takes = f"all but {'; '.join(refused)}" if refused else "all"
    return ("its own" if feature == "default" else feature, ", ".join(pools) or "-", takes)


def table() -> str:
    """Return the table of the families that the installed timm has: a row for those that take the same."""
    alike: dict[tuple[str, str, str], list[str]] = {}
    for family in FAMILIES:
        if family.is_known:
            alike.setdefault(facts(family), []).append(f"{family.name}: `{family.timm_name}`")
    lines = ["| families, for example | feature | `backbone.pool` | takes |", "| --- | --- | --- | --- |"]
    lines += [f"| {'; '.join(named)} | {' | '.join(fact)} |" for fact, named in alike.items()]
    return "\n".join(lines)


def main() -> None:
    """Write the table between its marks."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
