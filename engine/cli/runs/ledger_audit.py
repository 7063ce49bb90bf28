"""``weir run --ledger``: the effect ledger of a run, its findings as text, in ``run.json`` and in the verdict.

For this the job runs twice more, without faults and with sinks that write nothing, to compute the expected effects.
"""

from __future__ import annotations

import os
from typing import Any

from engine.elements.errors import EXIT_VIOLATED, WeirError
from engine.explore.cases import PER_KEY, promise_of
from engine.explore.ledger import EffectLedger, Findings, Seen, findings, reference, rows_of, seen_in_files
from engine.explore.run import SinkInMemory
from engine.graph.plan import ExecutionPlan
from engine.report.units import format_count, plural
from engine.report.verdict import Verdict
from engine.runtime.config import RunConfig
from operators.files.sinks import FileSink
from state_backends.files import LocalFileSystem

_PARAGRAPHS = 20
"""How many are printed; ``run.json`` has them all."""


class LedgerAudit:
    """The ledger of one run. Pass :attr:`ledger` to the run, and call :meth:`judge` when it is over."""

    def __init__(self, plan: ExecutionPlan, config: RunConfig, output_dir: str) -> None:
        self.ledger = EffectLedger(retains=config.retained)
        self._plan = plan
        self._config = config
        self._output_dir = output_dir
        self._found = Findings((), problem="the run is not over")

    @property
    def found(self) -> Findings:
        return self._found

    @property
    def promise(self) -> str:
        """The promise of the run's mode."""
        return promise_of(self._config.protocol)

    def judge(self) -> None:
        """Run the job without faults, and compare."""
        try:
            expected = reference(self._plan, self._config, file_system=LocalFileSystem(), output_dir=self._output_dir)
        except WeirError as error:
            self._found = Findings((), problem=f"the job fails without faults, too: {error}")
            return
        self._found = findings(self.ledger, expected, seen=self._seen())

    def _seen(self) -> dict[str, Seen]:
        seen: dict[str, Seen] = {}
        directories: dict[str, str] = {}
        for _, operator in self._plan.operators():
            sink = getattr(operator.factory, "__self__", None)
            if isinstance(sink, SinkInMemory):
                if getattr(sink, "delivery", "") != PER_KEY:
                    seen[operator.uid] = rows_of(sink)
            elif isinstance(sink, FileSink):
                directories[operator.uid] = os.path.join(self._output_dir, sink.path)
        return {**seen, **seen_in_files(self._plan, LocalFileSystem(), directories)}

    def verdict(self, of_the_run: Verdict) -> Verdict:
        """The verdict on the run; a finding that its mode forbids turns it into ``violated``."""
        breaking = self._found.breaking(self.promise)
        if not breaking or of_the_run.exit_code == EXIT_VIOLATED:
            return of_the_run
        count = plural(len(breaking), "finding")
        reason = f"the ledger has {count} that mode {self._config.mode} forbids; the first: {breaking[0].text}"
        return Verdict("violated", reason, EXIT_VIOLATED)

    def as_dict(self) -> dict[str, Any]:
        """The part of ``run.json``."""
        found = self._found
        return {
            "promise": self.promise,
            "problem": found.problem,
            "places_not_judged": found.unsettled,
            "consequences": found.consequences,
            "effects": self._effects(),
            "findings": [one.as_dict() for one in found.found],
            "paragraphs": found.paragraphs(self.ledger),
        }

    def _effects(self) -> dict[str, int]:
        effects = self.ledger.effects()
        outputs = {place: one for place, one in effects.items() if place.kind == "output"}
        cells = {place: one for place, one in effects.items() if place not in outputs}
        return {
            "cells": len(cells),
            "on_cells": sum(one.total() for one in cells.values()),
            "outputs": len(outputs),
            "on_outputs": sum(one.total() for one in outputs.values()),
        }

    def lines(self) -> list[str]:
        found, effects = self._found, self._effects()
        if found.problem is not None:
            lines = [f"ledger: {found.problem}"]
        else:
            cells = f"{plural(effects['on_cells'], 'effect')} on {plural(effects['cells'], 'cell')}"
            outputs = f"{format_count(effects['on_outputs'])} on {plural(effects['outputs'], 'output')}"
            lines = [f"ledger: {cells}, {outputs}" + ("" if found.found else ": each as often as it should be")]
        told = found.paragraphs(self.ledger)
        lines += [f"ledger: {one}" for one in told[:_PARAGRAPHS]]
        if len(told) > _PARAGRAPHS:
            lines.append(f"ledger: and {len(told) - _PARAGRAPHS} further findings in run.json")
        if found.unsettled:
            lines.append(
                f"note: the ledger does not judge {plural(found.unsettled, 'cell or output', 'cells and outputs')}:"
                " the order of events decides about them"
            )
        return lines
