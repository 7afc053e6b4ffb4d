"""``lw2g test`` counts right answers on class folders."""

from __future__ import annotations

import json
from pathlib import Path

import click

from lw2g.errors import counted

__all__ = ["test"]


@click.command(short_help="Test a run or an export on class folders.")
@click.argument("model", metavar="MODEL", type=click.Path(path_type=Path, file_okay=False))
@click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path))
@click.option("--device", metavar="NAME", help="cpu, cuda, cuda:N or mps. [default: the run's]")
@click.option(
    "--weights",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The backbone's weights, if they have moved.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def test(model: Path, folder: Path, device: str | None, weights: Path | None, as_json: bool) -> None:
    """Classify the images in FOLDER/CLASS with the run or export MODEL, and count the right answers.

    Classes of the model may be missing in FOLDER. Copies of an image count once.
    """
    from lw2g.models.saved import open_model
    from lw2g.models.scoring import score
    from lw2g.registry.catalogue import load_catalogue

    opened = open_model(model, load_catalogue(), None, device=device, weights=weights)
    scored = score(opened, folder)
    if as_json:
        click.echo(json.dumps(scored, indent=1))
        return
    from lw2g.console.output import console, number, table

    rows = []
    for row in scored["classes"]:
        wrong = ", ".join(f"{name} ({count})" for name, count in row["taken_for"][:3])
        rows.append((row["class"], wrong, str(row["images"]), number(row["recall"], 0)))
    console().print(table("", ("class", "taken for", "images", "found %"), rows, left=2))
    click.echo(f"{scored['accuracy']:.1f} % of {counted(scored['images'], 'image')} named rightly")
