"""The ledger as the judge of last resort.

Where a job depends on the order of its records, no rows can be compared. That each record has its effects, and has them
once, holds nevertheless.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from engine.elements.errors import ConfigurationError
from engine.explore.invariants import promise_of
from engine.explore.invariants.base import DAMAGE, NONE
from engine.explore.invariants.output import PromisedOutput
from engine.explore.ledger.effect_reference import EffectReference, reference
from engine.explore.ledger.invariant import EffectsInvariant
from engine.explore.subject import World

if TYPE_CHECKING:
    from engine.explore.case import Case
    from engine.explore.invariant import Invariant
    from engine.explore.subject import Subject
    from engine.runtime.config import RunConfig


def ledger_for(
    subject: Subject, case: Case, config: RunConfig, invariants: Sequence[Invariant]
) -> EffectsInvariant | None:
    """What judges a case by its effects, if its output is to be judged (V1) and cannot be compared.

    Not where nothing is promised, where the checkpoints that the promise rests on may be destroyed, and in modes that
    track records, which keep no ledger.
    """
    judge = next((one for one in invariants if isinstance(one, PromisedOutput)), None)
    if judge is None:
        return None
    protocol = config.protocol
    promise = judge.shared.promise or promise_of(protocol)
    kinds = frozenset((*(one.kind for one in case.faults), *case.mix.per_million))
    if promise == NONE or protocol.tracks_records or kinds & DAMAGE:
        return None
    try:
        if subject.reference(case.dropped).order_dependent is None:
            return None
    except ConfigurationError:
        # A job that fails by itself: the run will show it.
        return None
    return EffectsInvariant(_expected(subject, case, config), promise)


def _expected(subject: Subject, case: Case, config: RunConfig) -> EffectReference:
    """The effects without faults, found out once for each input and parallelism."""
    parallelism = case.config.get("parallelism")
    assert parallelism is None or isinstance(parallelism, int), parallelism
    key = (parallelism, tuple(sorted(case.dropped.items())))
    known = subject.effects.get(key)
    if known is None:
        world = World()
        plan = subject.in_world(subject.plan(parallelism), world, case.dropped)
        known = subject.effects[key] = reference(plan, config, file_system=world.files)
    return known
