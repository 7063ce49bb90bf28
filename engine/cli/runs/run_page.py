"""The page of a run: what ``--html`` writes."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from engine.cli.runs.next_step import again
from engine.explore.run import Subject
from engine.report.units import plural
from engine.report.verdict import Verdict
from engine.runtime.faulted import ProcessDiedError
from engine.view import FAULT, Recorder, RunFace, run_page, trail_of, write_page

if TYPE_CHECKING:
    from engine.cli.runs.driver import RunOrder
    from engine.cli.runs.ledger_audit import LedgerAudit


class RunPage:
    """Records a run, and writes its page."""

    def __init__(self, order: RunOrder) -> None:
        self._order = order
        assert order.html is not None, "the page of a run has a file"
        job = order.loaded.job
        self.recorder = Recorder(Subject(lambda _: job, label=job.name, path=order.loaded.path))

    def write(self, report: dict[str, Any], verdict: Verdict, audit: LedgerAudit | None) -> None:
        """Write the page of a run that has ended. Raises ``ConfigurationError`` when its file cannot be written."""
        ledger = None if audit is None else trail_of(audit.ledger, audit.found)
        paragraphs = [] if ledger is None else [("why", one) for one in ledger["paragraphs"][:5]]
        kind = verdict.name if verdict.name in ("valid", "violated") else "bad"
        lines = [(f"verdict {kind}", f"{verdict.name}: {verdict.reason}"), *_of_cuts(report), *paragraphs]
        self._write(lines, RunFace(self._name, self._crash(), report["checkpoints"], ledger))

    @contextmanager
    def if_it_dies(self) -> Iterator[None]:
        """A run whose process dies has a page, too."""
        try:
            yield
        except ProcessDiedError as died:
            self._write([("verdict bad", f"the process of the run was {died.cause}")], RunFace(self._name))
            raise

    @property
    def _name(self) -> str:
        options = self._order.options
        return f"job {self._order.loaded.job.name}, mode {options.get('mode')}, seed {options.get('seed')}"

    def _write(self, lines: list[tuple[str, str]], face: RunFace) -> None:
        from engine.cli.runs.driver import first_line

        order = self._order
        assert order.html is not None
        faults = f"; {', '.join(order.faults.texts())}" if not order.faults.is_empty else ""
        told = [("soft", f"{first_line(order)}{faults}"), *lines]
        title = f"{order.loaded.job.name}: mode {order.options.get('mode')}"
        write_page(order.html, run_page(title, self.recorder, face, told))

    def _crash(self) -> str | None:
        """The command that makes the run crash, if it can be made again."""
        order = self._order
        if order.restore or order.restore_from is not None:
            return None
        return f"{shlex.join([*again(order, order.options), *order.faults.options()])} --fault '{FAULT}'"


def _of_cuts(report: dict[str, Any]) -> list[tuple[str, str]]:
    """What each restored checkpoint that was no consistent cut has made of the output."""
    cuts = {cut["checkpoint_id"]: cut for cut in report["cuts"]}
    told = []
    for restore in report["restores"]:
        cut = cuts.get(restore["checkpoint_id"])
        if cut is not None and restore["attempt"] > 1 and cut["orphans"]:
            told.append(
                (
                    "why",
                    f"{plural(cut['orphans'], 'record')} {'counts' if cut['orphans'] == 1 else 'count'} twice. Attempt"
                    f" {restore['attempt']} was restored from checkpoint {cut['checkpoint_id']}, which is no consistent"
                    " cut: its state holds what had overtaken the barrier of a slower input (the orphans in the"
                    " diagram), and its source positions lie before that. So the sources sent it again, and it was"
                    " counted again.",
                )
            )
    return told
