"""Invariants: instruments that check what must hold in every case. ``invariants_for`` makes a fresh set for one case.

Rules. An invariant reads and never changes a run. It is silent on every healthy run, whatever its schedule: a false
alarm is worse than none. It describes a violation in the words of the job. Where it cannot judge it says why
(``skipped``). The table of all invariants is in ``docs/invariants.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from engine.elements.errors import ConfigurationError
from engine.explore.cases import check_promise
from engine.explore.invariants.barrier_order import Alignment, ConsistentCut, OrderOfCheckpoints
from engine.explore.invariants.base import DAMAGE as DAMAGE, Shared, Watcher as Watcher
from engine.explore.invariants.footprint import Footprint as Footprint, self_check as self_check
from engine.explore.invariants.happenings import SOMETIMES as SOMETIMES, Sometimes as Sometimes
from engine.explore.invariants.liveness import Assertions, Liveness, Quiescence
from engine.explore.invariants.log_checks import LogChecks
from engine.explore.invariants.promised_output import (
    FailureTransparency,
    PromisedOutput as PromisedOutput,
    keeps as keeps,
)
from engine.explore.invariants.rescaling import WholeAfterRestore
from engine.explore.invariants.savepoint_rules import NothingLeftAfterDrain, SavepointsStay, StartsWhereItWasStopped
from engine.explore.invariants.snapshots import CanonicalBytes, CompleteMeansWhole
from engine.explore.invariants.times import TimeGoesOn
from engine.explore.invariants.transactions import CommitOnCompletion, Fencing
from engine.explore.invariants.upload_bases import ConfirmedBase
from engine.explore.invariants.visible_rows import CoveredRows
from engine.explore.run import Invariant

_CLASSES: tuple[type[Watcher], ...] = (
    PromisedOutput,
    FailureTransparency,
    ConsistentCut,
    Alignment,
    OrderOfCheckpoints,
    CompleteMeansWhole,
    CommitOnCompletion,
    Fencing,
    LogChecks,
    WholeAfterRestore,
    TimeGoesOn,
    CanonicalBytes,
    Liveness,
    Quiescence,
    Sometimes,
    CoveredRows,
    SavepointsStay,
    StartsWhereItWasStopped,
    NothingLeftAfterDrain,
    ConfirmedBase,
    Assertions,
)
_BEFORE_V16 = _CLASSES.index(CoveredRows)


CATALOGUE: Mapping[str, type[Watcher] | type[Footprint]] = {
    **{one.name: one for one in _CLASSES[:_BEFORE_V16]},
    Footprint.name: Footprint,
    **{one.name: one for one in _CLASSES[_BEFORE_V16:]},
}
"""All invariants by name: what must hold, why, and the source of the rule. The caller that carries out a case twice
judges V16, by its :class:`Footprint`."""


def invariants_for(
    promise: str | None = None,
    *,
    only: Collection[str] | None = None,
    row_key: Callable[[str], str | None] | None = None,
) -> list[Invariant]:
    """Fresh invariants for one case.

    ``promise`` the promise that the output is judged by, ``None`` = that of the mode, as far as each sink can keep it;
    ``only``    the names of the invariants wanted, ``None`` = all;
    ``row_key`` takes the key from a row, where sinks keep the order of each key's rows: then this order is judged, too.

    :raises ConfigurationError: when there is no such promise, or no such invariant
    """
    check_promise(promise)
    wanted = {one.name for one in _CLASSES} if only is None else set(only)
    unknown = sorted(wanted - CATALOGUE.keys())
    if unknown:
        raise ConfigurationError(f"there is no invariant {', '.join(unknown)}; there are: {', '.join(CATALOGUE)}")
    shared = Shared(promise)
    order = OrderOfCheckpoints(shared)
    made = (_make(one, shared, order, row_key) for one in _CLASSES if one.name in wanted)
    return list(made)


def _make(
    kind: type[Watcher], shared: Shared, order: OrderOfCheckpoints, row_key: Callable[[str], str | None] | None
) -> Watcher:
    if kind is OrderOfCheckpoints:
        return order
    if kind is PromisedOutput:
        return PromisedOutput(shared, row_key)
    if kind is Alignment:
        return Alignment(shared, order)
    return kind(shared)


def sometimes(invariants: Sequence[Invariant]) -> dict[str, bool]:
    """For everything in ``SOMETIMES`` that applies to a case, by name: whether it has happened."""
    return next((one.happened for one in invariants if isinstance(one, Sometimes)), {})


def skipped(invariants: Sequence[Invariant]) -> dict[str, str]:
    """The invariants that could not judge a case, or not all of it, and why."""
    return {one.name: one.skipped for one in invariants if isinstance(one, Watcher) and one.skipped is not None}
