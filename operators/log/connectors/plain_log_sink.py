"""The operator that writes to a log without transactions: at least once, or without waiting for answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.elements.batch import Batch
from operators.basic import SinkOperator
from operators.log.port import AT_LEAST_ONCE, LogTimeoutError, Requests, TransactionLog

if TYPE_CHECKING:
    from operators.log.connectors.log_sink import LogSink


class PlainLogSink(SinkOperator):
    """Writes without transactions."""

    def __init__(self, spec: LogSink) -> None:
        self._spec = spec
        self.one_process, self.writes_alone = spec.one_process, spec.writes_alone
        self._requests = Requests(spec, self)
        self._log: TransactionLog | None = None

    def initialize_state(self) -> None:
        self._log = self._spec.attach(self.context)

    def process_batch(self, batch: Batch) -> None:
        spec, now_ns, log = self._spec, self.context.processing_time_ns(), self._log
        assert log is not None, "records come before initialize_state"
        for number, values in self._requests.by_partition(batch).items():
            if spec.delivery == AT_LEAST_ONCE:
                self._requests.ask(log.append, None, spec.topic, number, values, 0, now_ns)
                continue
            try:
                log.append(None, spec.topic, number, values, 0, now_ns)
            except LogTimeoutError:
                self.context.metrics.count("numRequestsUnanswered")
        if self.context.publish_at_once:
            self._flush()

    def snapshot_state(self, checkpoint_id: int) -> None:
        self._flush()

    def finish(self) -> None:
        self._flush()

    def _flush(self) -> None:
        # Sources do not read the records before a checkpoint again, so they must now be safe.
        if self._log is not None and self._spec.delivery == AT_LEAST_ONCE:
            self._requests.ask(self._log.flush)

    def close(self) -> None:
        self._detach(is_dead=False)

    def abandon(self) -> None:
        self._detach(is_dead=True)

    def _detach(self, *, is_dead: bool) -> None:
        log, self._log = self._log, None
        if log is not None:
            self._spec.detach(log, self.context.metrics, is_dead=is_dead)
