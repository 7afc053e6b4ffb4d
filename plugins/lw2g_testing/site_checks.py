"""Checks of a baseline's sites: they describe correctly what is measured and protected there."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn

from lw2g.errors import ConfigError
from lw2g.interfaces.baseline import Baseline
from lw2g.interfaces.site import Owner, Site
from lw2g.maths.moments import SecondMoment
from lw2g.maths.subspace import Subspace
from lw2g_testing.cases import ContractViolation, Subject, check, methods_of
from lw2g_testing.guards import seeded
from lw2g_testing.moved_session import MovedSession, moved_session, require_own_rows, require_sites

_ENERGY = 0.9
_NOTHING = 1e-6

OUTSIDE = 1e-3
"""Share of a gradient that rounding may leave outside the span of its rows (observed: 1e-6)."""


def _has_sites(subject: Subject) -> bool:
    return subject.component.has_sites  # type: ignore[no-any-return]


def _grows(subject: Subject) -> bool:
    return subject.component.growth == "sets"  # type: ignore[no-any-return]


def _declared(now: MovedSession) -> list[tuple[int | None, list[Site]]]:
    """Return the sites of every set, and the shared ones under None."""
    declared: list[tuple[int | None, list[Site]]] = []
    for set_id in now.pool.ids:
        declared.append((set_id, list(now.baseline.sites(now.pool[set_id]))))
    declared.append((None, list(now.baseline.shared_sites())))
    return declared


def _called(set_id: int | None, site: Site) -> str:
    if set_id is None:
        return f"shared site {site.name!r}"
    return f"site {site.name!r} of set {set_id}"


@check("baseline", applies=_has_sites)
def check_sites_are_what_they_say(subject: Subject) -> None:
    """Sites have unique names, parameters of their owner, taps that fire, and matching widths."""
    require_sites(subject)
    now = moved_session(subject)
    declared = _declared(now)
    _require_names(declared)
    for set_id, sites in declared:
        for site in sites:
            if not subject.component.query_sites and site.activation.tap.kind in ("query", "query_used"):
                raise ContractViolation(
                    f"{_called(set_id, site)} is of attention queries, and the record has query_sites=False: "
                    "who sets growth.heads is told that nothing reads it; leave query_sites out"
                )
            _require_owned(now, set_id, site)
            _require_fitting(site, _called(set_id, site), _tapped(now, set_id, site))
        _require_own_maps(now.baseline if set_id is None else now.pool[set_id], set_id, sites)


def _require_names(declared: Sequence[tuple[int | None, list[Site]]]) -> None:
    """Refuse sites of equal names, and sets whose sites have other names than those of the first set."""
    expected: set[str] | None = None
    for set_id, sites in declared:
        counts = Counter(site.name for site in sites)
        for name, count in counts.most_common(1):
            if count > 1:
                where = "shared sites" if set_id is None else f"sites of set {set_id}"
                raise ContractViolation(f"{count} {where} are named {name!r}; name each differently")
        if set_id is None:
            continue
        if expected is None:
            expected = set(counts)
        elif expected != set(counts):
            raise ContractViolation(
                f"site {min(expected ^ set(counts))!r} is not declared for both set 0 and set {set_id}; give "
                "the sites of all sets the same names, which do not tell the set or the task"
            )


def _require_owned(now: MovedSession, set_id: int | None, site: Site) -> None:
    """Refuse a site that names another owner than the module it is declared for, or no part of it.

    Args:
        now: The session.
        set_id: The set that the site is declared for; None for the baseline's shared ones.
        site: The site.
    """
    expected: Owner
    module: nn.Module
    if set_id is None:
        expected = "shared"
        method = "shared_sites"
        module = now.baseline
        whose = "the baseline"
    else:
        expected = "set"
        method = "sites"
        module = now.pool[set_id]
        whose = "that set"
    if site.owner != expected:
        raise ContractViolation(
            f"{_called(set_id, site)} says owner {site.owner!r}; {method} declares those of {expected!r} "
            "alone"
        )
    if not any(site.parameter is parameter for parameter in module.parameters()):
        raise ContractViolation(
            f"the parameter of {_called(set_id, site)} is no parameter of {whose}; name the tensor itself, "
            "not a copy or one of another owner"
        )
    try:
        site.view(site.parameter)
    except IndexError as error:
        raise ContractViolation(
            f"{_called(set_id, site)} has index {site.index}, which its parameter of shape "
            f"{list(site.parameter.shape)} does not have"
        ) from error


def _tapped(now: MovedSession, set_id: int | None, site: Site) -> Tensor:
    """Return the activation at a site's tap for some images in a forward of its set, ``[..., dim]``."""
    routing = now.pool.force(now.pool.ids[0] if set_id is None else set_id)
    tap = site.activation.tap
    batch = now.batch(range(16))
    batch.query  # noqa: B018  computed first, because its forward could be read instead
    try:
        return now.session.parts.backbone.read((tap,), lambda: now.baseline.features(batch, routing))[tap]
    except (ConfigError, ValueError, KeyError) as error:
        raise ContractViolation(
            f"tap {str(tap)!r} of {_called(set_id, site)} reads nothing in a forward ({error}); let "
            f"{methods_of(now.baseline, 'sites')} name a block of the backbone, and "
            f"{methods_of(now.baseline, 'features')} compute features through the backbone"
        ) from error


def _require_fitting(site: Site, called: str, tapped: Tensor) -> None:
    """Refuse a site whose rows are not as wide as its activation."""
    moment = SecondMoment(tapped.shape[-1])
    moment.update(tapped)
    try:
        width = site.activation.space(moment, lambda cut: Subspace.build(cut, _ENERGY)).dim
    except (RuntimeError, ValueError) as error:
        raise ContractViolation(
            f"the map of {called} cannot be applied to the tapped activation ({error}); return a matrix "
            f"[r, {moment.dim}]"
        ) from error
    rows = site.view(site.parameter)
    if not rows.ndim or rows.shape[-1] != width:
        raise ContractViolation(
            f"{called} is {list(rows.shape)}, but its activation is {width} wide; give the axis that "
            "multiplies the activation last, or map the activation"
        )


def _require_own_maps(module: nn.Module, set_id: int | None, sites: Sequence[Site]) -> None:
    """Refuse maps of one value at several taps where others of the kind are read by no map.

    A lambda in a loop that takes the loop's variable has its last value at all of them. One factor that all
    blocks share is legal: then there are no others.

    Args:
        module: The owner of the sites.
        set_id: The set that they are declared for; None for the baseline's shared ones.
        sites: The sites.
    """
    at: dict[tuple[int, int, torch.Size], list[Site]] = {}  # by what is read: storage, offset, shape
    for site in sites:
        if site.activation.map is not None:
            mapped = site.activation.map().detach()
            place = (mapped.untyped_storage().data_ptr(), int(mapped.storage_offset()), mapped.shape)
            at.setdefault(place, []).append(site)
    read: Counter[int] = Counter()  # numbers read of each storage
    for storage, _, shape in at:
        read[storage] += shape.numel()
    parameters = dict(module.named_parameters())
    for (storage, *_), several in at.items():
        of = [name for name, one in parameters.items() if one.untyped_storage().data_ptr() == storage]
        first = several[0]
        other = next((one for one in several if one.activation.tap != first.activation.tap), None)
        if not of or other is None:
            continue
        # slices of one parameter, or parameters of a list, whose names differ in a number
        kind = re.sub(r"\d+", "", of[0])
        alike = [one for name, one in parameters.items() if re.sub(r"\d+", "", name) == kind]
        if any(read[one.untyped_storage().data_ptr()] < one.numel() for one in alike):
            raise ContractViolation(
                f"the maps of {_called(set_id, first)} and {_called(set_id, other)} are one part of "
                f"{of[0]!r}, and no map is another part: a lambda in a loop sees the loop's last value; make "
                "each site in a function of its own, or bind the value (map=lambda block=block: ...)"
            )


@check("baseline", applies=_has_sites)
def check_taps_read_what_is_multiplied(subject: Subject) -> None:
    """A site's tap reads the activation that its parameter multiplies: it spans the gradient."""
    require_sites(subject)
    now = moved_session(subject)
    for set_id, sites in _declared(now):
        exact = [site for site in sites if site.activation.exact]
        for site, share in outside_the_tap(now, set_id, exact):
            if share > OUTSIDE:
                raise ContractViolation(
                    f"{share:.2g} of one image's gradient at {_called(set_id, site)} (at most {OUTSIDE:g} is "
                    f"rounding) lies outside the rows that tap {str(site.activation.tap)!r} reads of it; "
                    f"let {methods_of(now.baseline, 'sites')} name the tap (and map) of what the parameter's "
                    "last axis multiplies, or say exact=False where there is no such tap"
                )


def outside_the_tap(
    now: MovedSession, set_id: int | None, sites: Sequence[Site]
) -> Iterator[tuple[Site, float]]:
    """Yield the share of one image's gradient outside the span of the rows at each site's tap.

    Queries are compared per head, because attention computes logits per head. Sites that no gradient reaches
    are left out, and so are those whose tapped rows span everything.
    """
    if not sites:
        return
    routing = now.pool.force(now.pool.ids[0] if set_id is None else set_id)
    batch = now.batch([0])
    batch.query  # noqa: B018  computed first, because its forward could be read instead

    def forward() -> Tensor:
        return now.baseline.features(batch, routing)

    # a random sum of features and logits: its gradient reaches whatever takes part in either
    def random_sum() -> Tensor:
        with seeded(0):
            features = forward().float()
            logits = now.baseline.logits(now.as_answers(features))[:, : now.session.parts.infos[-1].seen]
            return (features * torch.randn_like(features)).sum() + (logits * torch.randn_like(logits)).sum()

    gradients = _gradients(sites, random_sum)
    taps = list(dict.fromkeys(site.activation.tap for site in sites))
    read = now.session.parts.backbone.read(taps, forward)
    for site in sites:
        gradient = gradients[id(site.parameter)]
        if gradient is None or not bool(site.view(gradient).any()):
            continue
        tap = site.activation.tap
        tapped = read[tap].detach().double().flatten(0, -2)
        if site.activation.map is not None:
            tapped = tapped @ site.activation.map().detach().double().T
        heads = 1
        if tap.kind in ("query", "query_used"):
            heads = now.session.parts.backbone.heads
        share_outside = _share_outside(site.rows(gradient).double(), tapped, heads)
        if share_outside is not None:
            yield site, share_outside


def _share_outside(rows: Tensor, tapped: Tensor, heads: int) -> float | None:
    """Return the share of the length of rows ``[n, dim]`` outside the span of the tapped rows, head by head.

    None if they span all, and nothing can be outside.
    """
    outside = 0.0  # squared length
    spans_all = True
    for part, others in zip(rows.chunk(heads, dim=1), tapped.chunk(heads, dim=1), strict=True):
        _, values, directions = torch.linalg.svd(others, full_matrices=False)
        basis = directions[values > _NOTHING * values.max()]
        outside += float((part - part @ basis.T @ basis).square().sum())
        spans_all &= len(basis) == part.shape[1]
    if spans_all:
        return None
    return math.sqrt(outside / float(rows.square().sum()))


def _gradients(sites: Sequence[Site], loss_of: Callable[[], Tensor]) -> dict[int, Tensor | None]:
    """Return the gradient of a loss at the sites' parameters, by these parameters' identities."""
    # sites may be rows of one parameter, of which autograd takes each once
    parameters = list({id(site.parameter): site.parameter for site in sites}.values())
    for parameter in parameters:
        parameter.requires_grad_(True)
    reached: Sequence[Tensor | None] = [None] * len(parameters)
    with torch.enable_grad():
        loss = loss_of()
        if loss.requires_grad:
            reached = torch.autograd.grad(loss, parameters, allow_unused=True)
    for parameter in parameters:
        parameter.requires_grad_(False)
    return dict(zip(map(id, parameters), reached, strict=True))


@check("baseline", applies=lambda subject: _grows(subject) and _has_sites(subject))
def check_probe_reaches_measured_sites(subject: Subject) -> None:
    """The gradient of the probe loss reaches every measured site of a trained set."""
    require_sites(subject)
    now = moved_session(subject)
    task = now.session.parts.infos[-1]
    measured: list[tuple[int | None, Site]] = []
    for owner, sites in _declared(now):
        measured += [(owner, site) for site in sites if site.measured]
    reached: set[int] = set()
    for set_id in now.pool.ids:
        routing = now.baseline.scope.force(now.pool, set_id)
        batch = now.of_task(task.index)

        def loss() -> Tensor:
            return now.baseline.probe_loss(now.baseline.features(batch, routing), batch, task)  # noqa: B023

        gradients = _gradients([site for _, site in measured], loss)
        for number, (owner, site) in enumerate(measured):
            gradient = gradients[id(site.parameter)]
            if owner in (None, set_id) and gradient is not None and bool(site.view(gradient).any()):
                reached.add(number)
    for number, (owner, site) in enumerate(measured):
        if number not in reached:
            raise ContractViolation(
                f"the gradient of probe_loss is zero at {_called(owner, site)}; let the loss depend on the "
                "set's parameters, or declare the site with measured=False"
            )


@check("baseline", applies=_grows)
def check_head_is_drawn_anew(subject: Subject) -> None:
    """draw_head redraws the classifier of the new classes, which moves probe_loss, and nothing else."""
    now = moved_session(subject, fresh=True)
    require_own_rows(subject)
    baseline = now.baseline
    task = now.session.parts.infos[-1]
    batch = now.of_task(task.index)
    others = [label for label in range(task.seen) if label not in task.classes]
    with torch.no_grad():
        features = baseline.features(batch, now.pool.force(now.pool.ids[-1]))

    def outcomes(seed: int) -> tuple[Tensor, Tensor]:
        with seeded(seed):
            baseline.draw_head(task)
        with torch.no_grad():
            logits = baseline.logits(now.as_answers(features))
            return baseline.probe_loss(features, batch, task), logits[:, others]

    loss, old_logits = outcomes(1)
    other_loss, other_old_logits = outcomes(2)
    # an override may belong to a classifier without random initial values
    if torch.equal(loss, other_loss) and type(baseline).draw_head is Baseline.draw_head:
        raise ContractViolation(
            "draw_head leaves probe_loss as it is; let it draw what the classifier of a task's classes "
            "begins with, or evidence rests on one draw"
        )
    # with the scope EACH logits combine all sets: those of old classes may depend on new ones
    if not baseline.scope.each and not torch.equal(old_logits, other_old_logits):
        raise ContractViolation("draw_head changes the logits of old classes; leave their rows as they are")
