"""The effect ledger as the judge of last resort.

Where a job depends on the order of its records, no rows can be compared. That each record has its effects, and has them
once, holds nevertheless.
"""

from __future__ import annotations

from engine.elements.errors import ConfigurationError
from engine.explore.cases import NONE, Case, promise_of, run_config
from engine.explore.invariants.base import DAMAGE
from engine.explore.ledger import EffectReference, EffectsInvariant, reference
from engine.explore.run import Subject, World
from engine.runtime.config import RunConfig


def effects_judge(subject: Subject, case: Case, promise: str | None) -> EffectsInvariant | None:
    """What judges a case by its effects, if its output cannot be compared. ``promise``: ``None`` = that of its mode.

    Not where nothing is promised, where the checkpoints that the promise rests on may be destroyed, and in modes that
    track records, which keep no ledger.
    """
    config = run_config(case)
    protocol = config.protocol
    promise = promise or promise_of(protocol)
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
    key = ("effects", parallelism, tuple(sorted(case.dropped.items())))
    known: EffectReference | None = subject.kept.get(key)
    if known is None:
        world = World()
        plan = subject.in_world(subject.plan(parallelism), world, case.dropped)
        known = subject.kept[key] = reference(plan, config, file_system=world.files)
    return known
