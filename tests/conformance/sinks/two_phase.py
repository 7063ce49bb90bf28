"""Replays of the vectors about two-phase-commit sinks: the base class, on transactions in memory that record their
requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.elements.batch import Batch
from engine.elements.errors import DataLossError
from operators.transactions import Transaction, TransactionLostError, TwoPhaseCommitSinkOperator
from state_backends.api import OperatorStateBackend
from tests.conformance.compare import Comparison, MalformedVector, Vector, check_fields
from tests.operators.harness import Checkpoint, Harness

_MS = 1_000_000
_FOREVER_MS = 2**63 - 1
_EVENTS: dict[str, set[str]] = {
    "open": {"task"},
    "restore": {"task", "from"},
    "write": {"task", "value"},
    "snapshot": {"task", "id", "save_as"},
    "notify_complete": {"task", "id"},
    "finish": {"task"},
    "close": {"task"},
    "crash": {"task"},
    "clock": {"t"},
    "fail_commit": {"txs"},
    "fail_precommit": {"on"},
    "check": {"label"},
}
_STATE, _EVERYBODYS = "transactions", "pre-committed-transactions"


class _PreCommitError(Exception):
    """A pre-commit that was to fail."""


class _Transactions:
    """The other system: all transactions of all tasks, and the requests to it."""

    def __init__(self) -> None:
        self.rows: dict[str, list[Any]] = {}
        self.ended: dict[str, str] = {}
        self.commit_calls: list[str] = []
        self.abort_calls: list[str] = []
        self.warnings: list[tuple[str, int]] = []
        self.failing_commits: str | list[str] = []
        self.fails_pre_commits = False

    def begin(self) -> str:
        name = f"tx{len(self.rows)}"
        self.rows[name] = []
        return name

    def commit(self, name: str) -> None:
        if self.failing_commits == "all" or name in self.failing_commits:
            raise TransactionLostError(f"{name} was to fail")
        self.ended[name] = "committed"
        self.commit_calls.append(name)

    def abort(self, name: str) -> None:
        self.ended.setdefault(name, "aborted")
        self.abort_calls.append(name)

    def observe(self) -> dict[str, object]:
        committed = [row for name, rows in self.rows.items() if self.ended.get(name) == "committed" for row in rows]
        return {"visible": sorted(committed), "open_tx": [name for name in self.rows if name not in self.ended]}


class _Sink(TwoPhaseCommitSinkOperator):
    def __init__(self, system: _Transactions, config: Vector) -> None:
        timeout_ms, ratio = config.get("timeout_ms", _FOREVER_MS), config.get("warning_ratio", -1)
        super().__init__(
            transaction_timeout_ns=None if timeout_ms == _FOREVER_MS else timeout_ms * _MS,
            timeout_warning_ratio=None if ratio < 0 else ratio,
            ignore_failures_after_transaction_timeout=config.get("ignore_failures_after_timeout", False),
        )
        self._system = system

    def begin(self) -> Transaction:
        return (self._system.begin(),)

    def invoke(self, transaction: Transaction, batch: Batch) -> None:
        self._system.rows[transaction[0]] += batch.values

    def pre_commit(self, transaction: Transaction, checkpoint_id: int | None) -> None:
        if self._system.fails_pre_commits:
            raise _PreCommitError(transaction[0])

    def commit(self, transaction: Transaction, checkpoint_id: int | None) -> None:
        self._system.commit(transaction[0])

    def abort(self, transaction: Transaction) -> None:
        self._system.abort(transaction[0])

    def transaction_near_timeout(self, transaction: Transaction, elapsed_ns: int) -> None:
        self._system.warnings.append((transaction[0], elapsed_ns // _MS))


class Assigned:
    """The snapshots that a task is given, in their order: elements of a list, and of a union list."""

    def __init__(self, snapshots: list[Checkpoint], list_name: str, union_name: str | None = None) -> None:
        self.id = max((snapshot.id for snapshot in snapshots), default=0)
        self._names = list_name, union_name
        self._elements: list[Any] = []
        self._everybodys: list[Any] = []
        for snapshot in snapshots:
            backend = OperatorStateBackend()
            snapshot.restore_operator(backend, 0, 1)
            self._elements += backend.list_state(list_name).get()
            if union_name is not None:
                self._everybodys += backend.union_list_state(union_name).get()

    def restore_keyed(self, backend: object) -> None:
        """The sink has none."""

    def restore_operator(self, backend: OperatorStateBackend, subtask: int, parallelism: int) -> None:
        list_name, union_name = self._names
        backend.list_state(list_name).update(self._elements)
        if union_name is not None:
            backend.union_list_state(union_name).update(self._everybodys)


class _World:
    """The tasks of one vector, and the clock that all of them see."""

    def __init__(self, config: Vector) -> None:
        check_fields(config, {"timeout_ms", "warning_ratio", "ignore_failures_after_timeout"}, "config")
        self._config = config
        self.system = _Transactions()
        self._tasks: dict[str, Harness] = {}
        self._snapshots: dict[str, Checkpoint] = {}
        self._now_ns = self._attempts = 0

    def apply(self, event: Vector) -> None:
        system, name = self.system, event.get("task", "A")
        match event["op"]:
            case "open":
                self._start(name, None)
            case "restore":
                self._start(name, Assigned([self._snapshots[one] for one in event["from"]], _STATE, _EVERYBODYS))
            case "clock":
                self._now_ns = event["t"] * _MS
                for task in self._tasks.values():
                    task.context.now_ns = self._now_ns
            case "fail_commit":
                system.failing_commits = event["txs"]
            case "fail_precommit":
                system.fails_pre_commits = event["on"]
            case "close":
                self._tasks.pop(name).close()
            case "crash":
                self._tasks.pop(name).operator.abandon()
            case _:
                self._drive(self._tasks[name], event)

    def _start(self, name: str, restored: Any) -> None:
        self._attempts += 1
        self._tasks[name] = Harness(
            _Sink(self.system, self._config), attempt=self._attempts, now_ns=self._now_ns, restored=restored
        )

    def _drive(self, task: Harness, event: Vector) -> None:
        match event["op"]:
            case "write":
                task.process([event["value"]])
            case "snapshot":
                checkpoint = task.snapshot(event["id"])
                if "save_as" in event:
                    self._snapshots[event["save_as"]] = checkpoint
            case "notify_complete":
                task.complete(event["id"])
            case "finish":
                task.finish()

    def error_of(self, event: Vector) -> str | None:
        """Carry out one event; returns its error."""
        try:
            self.apply(event)
        except _PreCommitError:
            return "precommit"
        except DataLossError:
            return "commit"
        except AssertionError as error:
            if str(error) != "records after finish":
                raise
            return "no_transaction"
        return None


def two_phase_commit(vector: Vector) -> list[str]:
    given, expect, comparison = vector["input"], vector["expect"], Comparison()
    check_fields(given, {"config", "events"}, "input")
    world = _World(given.get("config", {}))
    checks, errors, warnings = dict[str, object](), list[Vector](), list[Vector]()
    for number, event in enumerate(given["events"]):
        if event["op"] not in _EVENTS:
            raise MalformedVector(f"unknown operation {event['op']!r}")
        check_fields(event, {"op", *_EVENTS[event["op"]]}, f"operation {event['op']}")
        if event["op"] == "check":
            wanted = expect.get("checks", {}).get(event["label"], {})
            comparison.fields(wanted, world.system.observe(), f"{event['label']} ")
            checks[event["label"]] = wanted
            continue
        if error := world.error_of(event):
            errors.append({"event": number, "error": error})
        for name, elapsed_ms in world.system.warnings:
            warnings.append({"event": number, "tx": name, "elapsed_ms": elapsed_ms})
        world.system.warnings.clear()
    check_fields(expect.get("checks", {}), checks, "checks")
    observed = {
        "checks": checks,
        "commit_calls": world.system.commit_calls,
        "abort_calls": world.system.abort_calls,
        "errors": errors,
        "warnings": warnings,
    }
    comparison.fields(expect, observed)
    return comparison.finish()


KINDS: dict[str, Callable[[Vector], list[str]]] = {"two_phase_commit": two_phase_commit}
