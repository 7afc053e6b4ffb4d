"""What a baseline promises of its sites: what is measured and protected there is what it says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn

from lw2g.errors import ConfigError
from lw2g.geometry.moments import SecondMoment
from lw2g.geometry.subspace import build
from lw2g.interfaces.baseline import Baseline
from lw2g.interfaces.site import Owner, Site
from lw2g.testing.bench import Bench, built, lay_out_or_skip, seeded
from lw2g.testing.kit import ContractViolation, NotApplicable, Subject, check

__all__ = [
    "OUTSIDE",
    "check_head_is_drawn_anew",
    "check_probe_reaches_measured_sites",
    "check_site_names_differ",
    "check_sites_fit_their_activations",
    "check_sites_name_own_tensors",
    "check_taps_fire",
    "check_taps_read_what_is_multiplied",
    "outside_the_tap",
]

_ENERGY = 0.9
_NOTHING = 1e-6

OUTSIDE = 1e-3
"""Share of a gradient that rounding may leave outside the span of the rows it is made of (seen: 1e-6)."""


def _declared(subject: Subject) -> list[tuple[int | None, list[Site]]]:
    """Return the sites of every set, and the shared ones under None.

    Raises:
        NotApplicable: There are none.
    """
    bench = built(subject)
    found: list[tuple[int | None, list[Site]]] = [
        (set_id, list(bench.baseline.sites(bench.pool[set_id]))) for set_id in bench.pool.ids
    ]
    found.append((None, list(bench.baseline.shared_sites())))
    if not any(sites for _, sites in found):
        raise NotApplicable("it declares no sites")
    return found


def _each(subject: Subject) -> Iterator[tuple[int | None, Site]]:
    for set_id, sites in _declared(subject):
        for site in sites:
            yield set_id, site


def _called(set_id: int | None, site: Site) -> str:
    return f"shared site {site.name!r}" if set_id is None else f"site {site.name!r} of set {set_id}"


@check("baseline")
def check_site_names_differ(subject: Subject) -> None:
    """Site names are different within a set, and the same in every set."""
    declared = _declared(subject)
    for set_id, sites in declared:
        name, count = next(iter(Counter(site.name for site in sites).most_common(1)), ("", 0))
        if count > 1:
            where = "shared sites" if set_id is None else f"sites of set {set_id}"
            raise ContractViolation(f"{count} {where} are named {name!r}; name each differently")
    names = [sorted(site.name for site in sites) for set_id, sites in declared if set_id is not None]
    for set_id, other in enumerate(names):
        if other != names[0]:
            unlike = sorted(set(other) ^ set(names[0]))[0]
            raise ContractViolation(
                f"site {unlike!r} is not declared for both set 0 and set {set_id}; give the sites of all "
                "sets the same names, which do not tell the set or the task"
            )


@check("baseline")
def check_sites_name_own_tensors(subject: Subject) -> None:
    """A site's parameter is one of its owner: of the set, or of the baseline for shared sites."""
    bench = built(subject)
    for set_id, site in _each(subject):
        expected: Owner = "shared" if set_id is None else "set"
        if site.owner != expected:
            method = "shared_sites" if set_id is None else "sites"
            raise ContractViolation(
                f"{_called(set_id, site)} says owner {site.owner!r}; {method} declares those of "
                f"{expected!r} alone"
            )
        owner: nn.Module = bench.baseline if set_id is None else bench.pool[set_id]
        if not any(site.parameter is parameter for parameter in owner.parameters()):
            whose = "the baseline" if set_id is None else "that set"
            raise ContractViolation(
                f"the parameter of {_called(set_id, site)} is no parameter of {whose}; name the tensor "
                "itself, not a copy or one of another owner"
            )
        try:
            site.view(site.parameter)
        except IndexError as error:
            raise ContractViolation(
                f"{_called(set_id, site)} has index {site.index}, which its parameter of shape "
                f"{list(site.parameter.shape)} does not have"
            ) from error


@check("baseline")
def check_taps_fire(subject: Subject) -> None:
    """Every site's tap reads activations in a forward of its set."""
    bench = built(subject)
    for set_id, site in _each(subject):
        try:
            _tapped(bench, set_id, site)
        except (ConfigError, ValueError, KeyError) as error:
            raise ContractViolation(
                f"tap {str(site.activation.tap)!r} of {_called(set_id, site)} reads nothing in a forward "
                f"({error}); name a block of the backbone, and compute features through the backbone"
            ) from error


def _tapped(bench: Bench, set_id: int | None, site: Site) -> Tensor:
    """Return what a site's tap sees of some images, ``[..., dim]``."""
    routing = bench.pool.force(bench.pool.ids[0] if set_id is None else set_id)
    batch = bench.batch(torch.arange(16))
    batch.query  # noqa: B018  known before, so that reading it is no forward that could be read instead
    tap = site.activation.tap
    return bench.backbone.read((tap,), lambda: bench.baseline.features(batch, routing))[tap]


@check("baseline")
def check_sites_fit_their_activations(subject: Subject) -> None:
    """The last axis of a site is as wide as the activation that multiplies it, tapped or mapped from it."""
    bench = built(subject)
    for set_id, site in _each(subject):
        tapped = _tapped(bench, set_id, site)
        moment = SecondMoment(tapped.shape[-1])
        moment.update(tapped)
        try:
            width = site.activation.space(moment, lambda found: build(found, _ENERGY)).dim
        except (RuntimeError, ValueError) as error:
            raise ContractViolation(
                f"the map of {_called(set_id, site)} cannot be applied to the tapped activation ({error}); "
                f"return a matrix [r, {moment.dim}]"
            ) from error
        rows = site.view(site.parameter)
        if not rows.ndim or rows.shape[-1] != width:
            raise ContractViolation(
                f"{_called(set_id, site)} is {list(rows.shape)}, but its activation is {width} wide; give "
                "the axis that multiplies the activation last, or map the activation"
            )


@check("baseline")
def check_taps_read_what_is_multiplied(subject: Subject) -> None:
    """A site's tap reads the activation its parameter multiplies: gradients are made of tapped rows."""
    looked_at = 0
    bench = built(subject)
    for set_id, sites in _declared(subject):
        for site, share in outside_the_tap(bench, set_id, [one for one in sites if one.activation.exact]):
            looked_at += 1
            if share > OUTSIDE:
                raise ContractViolation(
                    f"{share:.2f} of one image's gradient at {_called(set_id, site)} lies outside the rows "
                    f"that tap {str(site.activation.tap)!r} reads of it; name the tap (and map) of what the "
                    "parameter's last axis multiplies, or say exact=False where there is no such tap"
                )
    if not looked_at:
        raise NotApplicable("it declares no exact site that a gradient reaches")


def outside_the_tap(bench: Bench, set_id: int | None, sites: Sequence[Site]) -> Iterator[tuple[Site, float]]:
    """Yield which share of one image's gradient lies outside the span of the rows at each site's tap.

    Queries are looked at head by head, because logits are formed per head (ruling b). Sites that no gradient
    reaches are left out, and those whose tapped rows span everything.
    """
    if not sites:
        return
    routing = bench.pool.force(bench.pool.ids[0] if set_id is None else set_id)
    batch = bench.batch(torch.arange(1))
    batch.query  # noqa: B018  known before, as above

    def forward() -> Tensor:
        return bench.baseline.features(batch, routing)

    gradients = _gradients(bench, sites, forward)
    read = bench.backbone.read(list(dict.fromkeys(site.activation.tap for site in sites)), forward)
    for site in sites:
        gradient = gradients[id(site.parameter)]
        if gradient is None or not bool(site.view(gradient).any()):
            continue
        rows, tap = site.rows(gradient).double(), site.activation.tap
        tapped = read[tap].detach().double().flatten(0, -2)
        heads = bench.backbone.heads if tap.kind == "query" else 1
        if site.activation.map is not None:
            tapped = tapped @ site.activation.map().detach().double().T
        left, everything = 0.0, True
        for part, made_of in zip(rows.chunk(heads, dim=1), tapped.chunk(heads, dim=1), strict=True):
            _, values, directions = torch.linalg.svd(made_of, full_matrices=False)
            basis = directions[values > _NOTHING * values.max()]
            left += float((part - part @ basis.T @ basis).square().sum())
            everything &= len(basis) == part.shape[1]
        if not everything:
            yield site, (left / float(rows.square().sum())) ** 0.5


def _gradients(
    bench: Bench, sites: Sequence[Site], forward: Callable[[], Tensor]
) -> dict[int, Tensor | None]:
    """Return the gradient of random sums of features and logits, by the parameters' identities."""
    parameters = list({id(site.parameter): site.parameter for site in sites}.values())
    for parameter in parameters:
        parameter.requires_grad_(True)
    with torch.enable_grad(), seeded(0):
        features = forward().float()
        logits = bench.baseline.logits(bench.as_answers(features))[:, : bench.history[-1].seen]
        total = sum((one * torch.randn_like(one)).sum() for one in (features, logits))
        found = torch.autograd.grad(torch.as_tensor(total), parameters, allow_unused=True)
    for parameter in parameters:
        parameter.requires_grad_(False)
    return {id(one): gradient for one, gradient in zip(parameters, found, strict=True)}


@check("baseline")
def check_probe_reaches_measured_sites(subject: Subject) -> None:
    """The gradient of the probe loss reaches every measured site of a trained set."""
    bench = built(subject)
    if bench.component.growth == "fixed":
        raise NotApplicable("it does not grow, so no evidence is collected")
    task = bench.history[-1]
    measured = [(set_id, site) for set_id, site in _each(subject) if site.measured]
    if not measured:
        raise NotApplicable("it declares no measured sites")
    parameters = list({id(site.parameter): site.parameter for _, site in measured}.values())
    reached: set[int] = set()
    for set_id in bench.pool.ids:
        routing = (
            bench.pool.route(None) if bench.baseline.feature_scope == "pool" else bench.pool.force(set_id)
        )
        for parameter in parameters:
            parameter.requires_grad_(True)
        batch = bench.batch(torch.arange(16), task.classes)
        loss = bench.baseline.probe_loss(bench.baseline.features(batch, routing), batch, task)
        found = torch.autograd.grad(loss, parameters, allow_unused=True) if loss.requires_grad else ()
        for parameter in parameters:
            parameter.requires_grad_(False)
        gradients = {id(one): gradient for one, gradient in zip(parameters, found, strict=False)}
        for place, (owner, site) in enumerate(measured):
            gradient = gradients.get(id(site.parameter))
            if owner in (None, set_id) and gradient is not None and bool(site.view(gradient).any()):
                reached.add(place)
    for place, (owner, site) in enumerate(measured):
        if place not in reached:
            raise ContractViolation(
                f"the gradient of probe_loss is zero at {_called(owner, site)}; let the loss depend on the "
                "set's parameters, or declare the site with measured=False"
            )


@check("baseline")
def check_head_is_drawn_anew(subject: Subject) -> None:
    """``draw_head`` moves the probe loss by the new classes' part of the classifier, and nothing else."""
    bench = lay_out_or_skip(subject)
    if bench.component.growth == "fixed":
        raise NotApplicable("it does not grow, so no evidence is collected")
    baseline, task = bench.baseline, bench.history[-1]
    batch = bench.batch(torch.arange(16), task.classes)
    buffers = {name: value.clone() for name, value in baseline.named_buffers()}
    others = [one for one in range(task.seen) if one not in task.classes]

    def outcomes(seed: int) -> tuple[Tensor, Tensor]:
        with seeded(seed):
            baseline.draw_head(task)
        with torch.no_grad():
            logits = baseline.logits(bench.as_answers(features))
            return baseline.probe_loss(features, batch, task), logits[:, others]

    with torch.no_grad():
        features = baseline.features(batch, bench.pool.force(bench.pool.ids[-1]))
    drawn, other = outcomes(1), outcomes(2)
    # whoever overrides it may have a classifier that begins with nothing random
    if torch.equal(drawn[0], other[0]) and type(baseline).draw_head is Baseline.draw_head:
        raise ContractViolation(
            "draw_head leaves probe_loss as it is; let it draw what the classifier of a task's classes "
            "begins with, or evidence rests on one draw"
        )
    # where each set answers, one answer is made of theirs: old classes may depend on new ones
    if not bench.each and not torch.equal(drawn[1], other[1]):
        raise ContractViolation("draw_head changes the logits of old classes; leave their rows as they are")
    moved = [name for name, value in baseline.named_buffers() if not torch.equal(value, buffers[name])]
    if moved:
        raise ContractViolation(
            f"draw_head changes buffer {moved[0]!r}; change parameters only, which are put back afterwards"
        )
