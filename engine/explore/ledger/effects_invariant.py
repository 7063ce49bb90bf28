"""The effect ledger as an invariant: every record has each of its effects as often as expected."""

from __future__ import annotations

from collections.abc import Mapping

from engine.explore.cases import PER_KEY, Case, run_config
from engine.explore.ledger.effect_reference import EffectReference, reference
from engine.explore.ledger.findings import Findings, Seen, findings, seen_in_files
from engine.explore.ledger.ledger import EffectLedger
from engine.explore.run import OUTPUT_DIR, FinishedCase, Invariant, SinkInMemory, Subject, World
from engine.graph.plan import ExecutionPlan


class EffectsInvariant(Invariant):
    """Judges a case by its ledger, which the run must get: ``run_case(..., provenance=invariant.ledger)``."""

    name = "effects"
    title = "every record has its effects, and none has them more often than is promised"
    reason = "equal output may be right by chance; which record was lost or counted twice is what there is to repair"
    source = "effect provenance: where-provenance of streams (Glavic et al., Ariadne, DEBS 2013)"

    def __init__(self, expected: EffectReference, promise: str) -> None:
        """``expected``: the effects of the case without faults; ``promise``: the promise that it is judged by."""
        super().__init__()
        self.ledger = self.provenance = EffectLedger()
        self.found: Findings | None = None
        self._expected = expected
        self._promise = promise

    @classmethod
    def of(cls, subject: Subject, case: Case, promise: str) -> EffectsInvariant:
        """The judge of a case. Its job runs without faults, once for each input and parallelism; raises what it raises
        then."""
        parallelism = case.config.get("parallelism")
        assert parallelism is None or isinstance(parallelism, int), parallelism
        key = ("effects", parallelism, tuple(sorted(case.dropped.items())))
        expected: EffectReference | None = subject.kept.get(key)
        if expected is None:
            world = World()
            plan = subject.in_world(subject.plan(parallelism), world, case.dropped)
            expected = reference(plan, run_config(case), file_system=world.files, output_dir=OUTPUT_DIR)
            subject.kept[key] = expected
        return cls(expected, promise)

    def finished(self, case: FinishedCase) -> None:
        self.found = findings(self.ledger, self._expected, seen=seen_in(case.view.world, case.view.plan))
        for one in self.found.breaking(self._promise):
            self.violated(one.text, **{name: value for name, value in one.as_dict().items() if name != "text"})


def rows_of(sink: SinkInMemory) -> Seen:
    """The rows that readers of one sink see; a sink into a table says how its rows are written."""
    return Seen(sink.committed_rows(), getattr(sink, "text_of", repr))


def seen_in(world: World, plan: ExecutionPlan) -> Mapping[str, Seen]:
    """The rows that readers of a world see, sink by sink."""
    seen = {uid: rows_of(sink) for uid, sink in world.sinks.items() if getattr(sink, "delivery", "") != PER_KEY}
    return {**seen, **seen_in_files(plan, world.files, world.file_sinks)}
