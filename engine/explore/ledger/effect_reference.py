"""The expected effects of each record, with their numbers: the same job without faults, its sinks writing nothing.

The job runs twice, with two orders of events. Where the two differ, the job itself does not fix the effects of a record
(for example because a function drops late records). All cells, or the output, of such an operator are not judged: if
the order decides about one key, it may decide about others.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from engine.checkpoint.restore import NoRestart
from engine.elements.batch import Batch
from engine.elements.operator import Operator
from engine.explore.ledger.ledger import EffectLedger
from engine.explore.ledger.ledger_entries import Origin, Place
from engine.explore.ledger.ranges import RangeSet
from engine.explore.ledger.scratch_files import ScratchFileSystem
from engine.graph.plan import ExecutionPlan, OperatorPlan
from engine.runtime.config import RunConfig
from engine.runtime.execution import Execution
from operators.basic import FunctionStateOperator, SinkOperator
from state_backends.files import FileSystem, MemoryFileSystem

Layers = dict[Origin, list[RangeSet]]
"""By origin: the records with one effect or more, two or more, and so on."""

OTHER_SEED = "another order"


@dataclass(frozen=True, slots=True)
class EffectReference:
    """``effects``: by cell and output; ``unsettled``: uids of operators whose effects depend on the order of events, or
    that got summaries of records which are not known."""

    effects: dict[Place, Layers]
    unsettled: frozenset[str] = field(default_factory=frozenset)


class _Nowhere(SinkOperator):
    """A sink that writes nothing."""

    def process_batch(self, batch: Batch) -> None:
        """Discard it."""


class _NowhereCommitting(_Nowhere):
    """The same for a sink that shows its rows when a checkpoint completes."""

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """No row is waiting."""


class _NowhereKept(_Nowhere):
    """The same for a sink that keeps its counts in its state."""

    def snapshot_state(self, checkpoint_id: int) -> None:
        """Nothing is kept."""


def by_origin(ledger: EffectLedger) -> dict[Place, Layers]:
    """The effects of a ledger, named without reference to it."""
    return {
        place: {ledger.origins[split]: layers for split, layers in effects.splits.items() if layers}
        for place, effects in ledger.effects().items()
    }


def reference(
    plan: ExecutionPlan, config: RunConfig, *, file_system: FileSystem | None = None, output_dir: str = "."
) -> EffectReference:
    """Run the job without faults, twice. ``file_system``: for its sources; nothing is written to it. Raises any
    exception of the job."""
    files = MemoryFileSystem() if file_system is None else file_system
    quiet = plan.with_operators(_silenced)
    runs: list[dict[Place, Layers]] = []
    unjudged: dict[str, None] = {}
    for seed in (config.seed, OTHER_SEED):
        ledger = EffectLedger(keeps_rows=False)
        alone = replace(config, seed=seed, restart=NoRestart(), local_recovery=False)
        Execution(
            quiet,
            alone,
            # Some sinks write in one operator and publish in another one. They must not meet the output of the run.
            file_system=ScratchFileSystem(files),
            output_dir=posixpath.join(output_dir, ".reference"),
            provenance=ledger,
        ).run().raise_on_failure()
        runs.append(by_origin(ledger))
        unjudged |= ledger.unjudged
    first, second = runs
    places = dict.fromkeys((*first, *second))
    differing = frozenset(place.uid for place in places if first.get(place) != second.get(place))
    return EffectReference(first, differing.union(unjudged))


def _silenced(operator: OperatorPlan) -> OperatorPlan:
    """An operator as it is, but a sink as one that writes nothing, and looks the same to a ledger."""
    made = operator.factory()
    kind = type(made)
    without_effects = getattr(made, "without_effects", None)
    if without_effects is not None:
        return replace(operator, factory=without_effects)
    if operator.chained_outputs or operator.edge_outputs:
        return operator
    if not isinstance(made.inner if isinstance(made, FunctionStateOperator) else made, SinkOperator):
        # A function whose output is not read.
        return operator
    stand_in: type[Operator] = _Nowhere
    if kind.notify_checkpoint_complete is not Operator.notify_checkpoint_complete:
        stand_in = _NowhereCommitting
    elif kind.snapshot_state is not Operator.snapshot_state:
        stand_in = _NowhereKept
    return replace(operator, factory=partial(_made, stand_in, kind.summaries_of), create_coordinator=None)


def _made(stand_in: type[Operator], summaries_of: Callable[[Sequence[Any]], Sequence[Any]] | None) -> Operator:
    operator = stand_in()
    operator.summaries_of = summaries_of
    return operator
