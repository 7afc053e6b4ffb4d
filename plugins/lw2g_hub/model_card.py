"""The card of a model on the hub: what its record says of it, and lines that its owner fills.

What the record says stands between two marks and is written anew with each push. All else, the owner's lines
among it, is written once and never touched again.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import yaml

from lw2g import __version__
from lw2g.api.recorded import LeadingCheck, check_of
from lw2g.disk.checkpoint import part
from lw2g.errors import counted
from lw2g.model.exported import Saved
from lw2g.model.manifest import Manifest

__all__ = ["card_of", "renewed"]

_BEGIN = "<!-- from the record of the model: each `lw2g push` writes this part anew -->"
_END = "<!-- end of what the record says -->"
_FOR_THE_OWNER = (
    "- Made of people's photographs? **Not said.** The owner writes here yes or no, and whether they agreed.",
    "- Licence of this model: **not said.** The owner names it here, and as `license:` at the top.",
    "- Meant for: **not said.**",
)
_NOT_KNOWN = "not known"
_SHOWN = 10
"""Classes that a list names at most."""
_MARKUP = re.compile(r"([\\`*_{}\[\]()#+!|~])")
"""What Markdown would not show as it stands."""


def card_of(saved: Saved, repo: str) -> str:
    """Return the card of a model that is on no hub yet.

    Args:
        saved: The model as its owner has it.
        repo: ``OWNER/NAME``.
    """
    manifest = saved.manifest
    facts: dict[str, Any] = {
        "library_name": "lw2g",
        "pipeline_tag": "image-classification",
        "tags": ["lw2g", "continual-learning", "image-classification"],
    }
    base = _base_model(manifest)
    if base is not None:
        facts["base_model"] = base
    front = yaml.safe_dump(facts, sort_keys=False, allow_unicode=True)
    lines = [
        f"---\n{front}---",
        "",
        f"# {_plain(repo.partition('/')[2])}",
        "",
        *_FOR_THE_OWNER,
        "",
        _BEGIN,
        "",
        *_of_the_record(saved, repo),
        _END,
        "",
    ]
    return "\n".join(lines)


def renewed(old: str, new: str) -> str | None:
    """Return a card with the record's part of another one; None where it has no such part.

    Args:
        old: The card as it stands on the hub, where its owner may have written.
        new: The card of the model that is pushed.
    """
    before, begin, rest = old.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        return None
    return before + _BEGIN + new.partition(_BEGIN)[2].partition(_END)[0] + _END + after


def _of_the_record(saved: Saved, repo: str) -> Iterator[str]:
    """Yield the lines of the part that the record writes."""
    manifest = saved.manifest
    yield from _use(manifest, repo)
    yield from _classes(saved)
    yield from _quality(saved)
    yield from _backbone(saved)
    yield from _history(manifest)


def _use(manifest: Manifest, repo: str) -> Iterator[str]:
    """Yield what the model is, and how it is used."""
    method = f"`{manifest.baseline.name}`"
    head = manifest.baseline.options.get("head")
    if head is not None:
        method += f" with head `{head}`"
    classes = counted(len(_names(manifest)), "class")
    yield f"An image classifier of {classes}, made with lw2g {__version__}: {method}."
    yield ""
    yield "```sh"
    yield f"lw2g predict hf://{repo} photo.jpg"
    yield f"lw2g pull hf://{repo} model        # a copy, which can learn more classes: lw2g learn model new"
    yield "```"
    yield ""
    yield "`@COMMIT` behind the name pins what is loaded. The files are JSON and safetensors, without code."
    packages = {f"{one.distribution} {one.version}" for one in manifest.components if one.distribution}
    others = sorted(name for name in packages if not name.startswith("lw2g "))
    if others:
        yield f"It needs packages beside lw2g: {_plain(', '.join(others))}."
    yield ""


def _classes(saved: Saved) -> Iterator[str]:
    """Yield a row for each class."""
    manifest = saved.manifest
    images = _images_of(saved)
    found: dict[str, str] = {}
    which = "images set apart"
    check = _check_of(manifest)
    if check is not None and check.leaves_out:
        which = "images, each left out in turn"
        for one in check.classes:
            found[one.name] = _share_found(one.found, one.images)
    else:
        for step in manifest.history.steps:  # the last check of a class counts
            for entry in step.checks.get("classes", ()):
                if entry["checked"]:
                    found[entry["class"]] = _share_found(entry["recall"], entry["checked"])
    yield "## Classes"
    yield ""
    yield f"| class | images learned from | found of {which} |"
    yield "| --- | ---: | ---: |"
    for name in _names(manifest):
        yield f"| {_plain(name)} | {images.get(name, _NOT_KNOWN)} | {found.get(name, 'not checked')} |"
    yield ""


def _check_of(manifest: Manifest) -> LeadingCheck | None:
    """Return what `lw2g show` says, without the folder of test images: its name may tell of the owner."""
    check = check_of(manifest)
    if check is None or not manifest.history.steps[-1].checks.get("tested_on"):
        return check
    return attrs.evolve(check, which=" from a test folder of the owner")


def _share_found(recall: float | None, images: int) -> str:
    return "not checked" if recall is None else f"{recall:.0f} % of {images}"


def _quality(saved: Saved) -> Iterator[str]:
    """Yield how often it is right, how true its probabilities are, and what it refuses."""
    check = _check_of(saved.manifest)
    calibration = part(saved.tensors, "calibration")
    yield "## What to expect"
    yield ""
    if check is not None:
        yield f"- Accuracy: {check.words}."
    else:
        yield f"- Accuracy: {_NOT_KNOWN} to this card; `lw2g test` counts right answers on class folders."
    temperature = calibration.get("temperature")
    if temperature is None:
        yield "- Probabilities: not calibrated."
    else:
        steps = saved.manifest.history.steps
        error = steps[-1].checks.get("ece") if steps else None
        told = "" if error is None else f", calibration error {error:.1f} % (ECE, 15 bins)"
        fitted = f"temperature {float(temperature):.4g}"
        yield f"- Probabilities: calibrated on images left out of the sums ({fitted}){told}."
    known = calibration.get("known")
    if known is None:
        yield "- Unknown images: it cannot tell them, and names one of its classes for any image."
    else:
        yield (
            "- Unknown images: `--reject 0.05` refuses what is less like its classes than 5 % of "
            f"{counted(len(known), 'kept image')}. It refuses nothing unless asked, and strangers that "
            "look like a class pass."
        )
    yield ""


def _backbone(saved: Saved) -> Iterator[str]:
    """Yield whose features it reads."""
    manifest = saved.manifest
    known = manifest.fingerprint
    if part(saved.tensors, "backbone"):
        where = "its weights are in `model.safetensors`"
    elif known.source in ("timm hub tag", "package"):
        where = "lw2g brings its weights"
    else:
        where = (
            "its weights are not here: lw2g fetches those of this name, or takes a file (`--weights FILE`)"
        )
    yield "## Backbone"
    yield ""
    yield f"- `{known.timm_name}` at {known.image_size} pixels, frozen; {where}."
    yield f"- SHA-256 of the weights: `{known.sha256}`"
    yield f"- Licence of the weights: {_licence(manifest)}"
    yield ""


def _history(manifest: Manifest) -> Iterator[str]:
    """Yield what was learned and forgotten, and when."""
    history = manifest.history
    events = []
    for step in history.steps:
        text = f"learned {counted(sum(step.images), 'image')} of {_plain(', '.join(_few(step.classes)))}"
        accuracy = step.checks.get("accuracy")
        if accuracy is not None:
            text += f"; accuracy of images set apart {accuracy:.1f} %"
        events.append((step.time, text))
    by_time: dict[str, int] = {}
    for time in history.forgotten.values():
        by_time[time] = by_time.get(time, 0) + 1
    for time, count in by_time.items():
        events.append((time, f"forgot {counted(count, 'class')}, whose name does not stand here"))
    undated = len(history.names) - len(history.numbers) - len(history.forgotten)
    yield "## Learned and forgotten"
    yield ""
    before = manifest.tasks[: history.tasks]
    if before:
        count = sum(task.num_images for task in before)
        run = manifest.learned_from.get("name")
        whose = f" in a run on `{run}`" if run else ""
        what = f"{counted(count, 'image')} in {counted(len(before), 'task')}"
        yield f"- First: {what}{whose}; the time is {_NOT_KNOWN}."
    for time, text in sorted(events):
        yield f"- {time[:16].replace('T', ' ')} UTC: {text}."
    if undated > 0:
        yield f"- Forgotten at a time that is {_NOT_KNOWN}: {counted(undated, 'class')}."
    yield ""


def _names(manifest: Manifest) -> Sequence[str]:
    return manifest.class_map.target_names


def _images_of(saved: Saved) -> dict[str, int]:
    """Return of how many images the sums of each class are; nothing where the head keeps no sums."""
    manifest = saved.manifest
    counts = part(saved.tensors, "baseline").get("closed_form.count")
    if counts is None:
        return {}
    images = dict.fromkeys(_names(manifest), 0)
    for entry in manifest.class_map:
        images[_names(manifest)[entry.target]] += int(counts[entry.position])
    return images


def _base_model(manifest: Manifest) -> str | None:
    """Return the repository that has the backbone's weights, for what is timm's and has a tag."""
    published = _timm_facts(manifest)
    if published is None or not published.hf_hub_id:
        return None
    repository = str(published.hf_hub_id)
    return repository if "/" in repository else f"timm/{manifest.fingerprint.timm_name}"


def _licence(manifest: Manifest) -> str:
    """Return the licence of the backbone's weights as far as it is known."""
    known = manifest.fingerprint
    if known.source == "package":
        return "Apache-2.0, as lw2g's"
    published = _timm_facts(manifest)
    licence = None if published is None else getattr(published, "license", None)
    if not licence:
        return _NOT_KNOWN
    if known.source == "file":
        return f"{licence} of the weights of this name, says timm; these came as a file"
    return f"{licence}, says timm"


def _timm_facts(manifest: Manifest) -> Any:
    """Return what timm knows of the weights of a name with a tag; None without one."""
    known = manifest.fingerprint
    if known.source not in ("timm hub tag", "file") or "." not in known.timm_name:
        return None
    import timm

    return timm.models.get_pretrained_cfg(known.timm_name)


def _few(names: Sequence[str]) -> list[str]:
    """Return the first of some names, and how many more there are."""
    if len(names) <= _SHOWN:
        return list(names)
    return [*names[:_SHOWN], f"{len(names) - _SHOWN} more"]


def _plain(text: str) -> str:
    """Return text so that Markdown shows it as it is: a class may be called anything."""
    return _MARKUP.sub(r"\\\1", html.escape(text, quote=False))
