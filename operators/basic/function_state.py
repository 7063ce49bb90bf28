"""Operator state for user functions, so that no one has to write an operator for it.

Rules (Flink: ``CheckpointedFunction``, ``ListCheckpointed``, ``StreamingFunctionUtils``).

* State is declared in ``initialize_state``, which comes before ``open``, on a fresh start and after a restore. It
  belongs to the subtask and not to a key.
* ``snapshot_state`` brings it up to date; it is copied as soon as that returns.
* When the parallelism changes, the elements of a list are divided among the subtasks. Each subtask gets the whole of a
  union list, and a copy of a broadcast state.
* Every subtask and attempt works on its own copy of the function, so its attributes start as the job file made them.
* The checkpoint names the function's class. A function of another class does not take over its state by accident.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from engine.elements.batch import Batch
from engine.elements.errors import NO_RECORD, ConfigurationError, JobChangedError, WeirError, shorten
from engine.elements.operator import Operator, OperatorContext, OperatorFactory, Output, TwoInputOperator
from operators.basic.functions import own_instance
from state_backends.api import OperatorBroadcastState, OperatorListState
from state_backends.base import anything, text

_CLASS, _LIST, _NAMED = "function-class", "function-list", "function."


class FunctionStateContext:
    """What a function may declare in ``initialize_state``."""

    def __init__(self, context: OperatorContext) -> None:
        self._backend = context.operator_backend()
        self.is_restored = context.restored_checkpoint_id() is not None
        """Whether the job starts from a checkpoint or savepoint."""
        self.subtask = context.subtask
        self.parallelism = context.parallelism

    def list_state(self, name: str) -> OperatorListState:
        """A list whose elements are divided among the subtasks when the parallelism changes."""
        return self._backend.list_state(_NAMED + name, anything)

    def union_list_state(self, name: str) -> OperatorListState:
        """A list of which each subtask gets the elements of all."""
        return self._backend.union_list_state(_NAMED + name, anything)

    def broadcast_state(self, name: str) -> OperatorBroadcastState:
        """A map that is equal in all subtasks. Change it only by records that all of them get."""
        return self._backend.broadcast_state(_NAMED + name)


class CheckpointedFunction:
    """Base of functions with operator state (a second base, beside that of a process or sink function; an object with
    ``__call__`` for ``map``, ``flat_map`` and ``filter``)."""

    state_id: str | None = None
    """The name under which a checkpoint knows the function; by default that of its class."""

    def initialize_state(self, ctx: FunctionStateContext) -> None:
        """Declare state; restored state is there already."""

    def snapshot_state(self, checkpoint_id: int) -> None:
        """Bring declared state up to date."""


class ListCheckpointed:
    """Base of functions whose state is one list that they return and get back."""

    state_id: str | None = None
    """As of :class:`CheckpointedFunction`."""
    is_union = False
    """Whether each subtask gets the elements of all."""

    def snapshot_state(self, checkpoint_id: int) -> Sequence[Any]:
        """A list of the elements to store; none of them ``None``."""
        return ()

    def restore_state(self, elements: list[Any]) -> None:
        """Take over elements. Called only when the job starts from a checkpoint or savepoint."""


def has_state(function: object) -> bool:
    """Whether a function, or the class of one, has operator state. Raises ``ConfigurationError`` for one whose state
    would not be kept, or could not be restored."""
    kind: Any = function if isinstance(function, type) else type(function)
    bases = [base for base in (CheckpointedFunction, ListCheckpointed) if issubclass(kind, base)]
    if len(bases) == 2:
        raise ConfigurationError(
            f"function {kind.__name__} is a CheckpointedFunction and a ListCheckpointed, and their methods differ\n"
            "  fix: derive it from one of them"
        )
    if not bases:
        if hasattr(function, "snapshot_state") or hasattr(function, "restore_state"):
            raise ConfigurationError(
                f"function {shorten(function)} has methods for operator state, which would never be called\n"
                "  fix: derive its class from CheckpointedFunction or ListCheckpointed, too"
            )
        return False
    name: object = getattr(function, "state_id", None)
    if name is not None and (type(name) is not str or not name):
        raise ConfigurationError(
            f"state_id of function {kind.__name__} is {name!r}; it must be a text, such as the name of the class that"
            " had the state"
        )
    return True


class FunctionState:
    """The state of the function of one operator."""

    def __init__(self, operator: Operator, function: Any) -> None:
        self._operator = operator
        self._function = function
        self._list: OperatorListState | None = None

    def initialize(self) -> None:
        """The operator's state may be declared now."""
        function, context = self._function, self._operator.context
        backend, restored_id = context.operator_backend(), context.restored_checkpoint_id()
        classes = backend.union_list_state(_CLASS, text)
        mine = function.state_id or type(function).__name__
        self._refuse_another(classes.get(), mine)
        classes.update([mine])
        if isinstance(function, CheckpointedFunction):
            self._call("initialize_state", partial(function.initialize_state, FunctionStateContext(context)))
            return
        make = backend.union_list_state if function.is_union else backend.list_state
        self._list = make(_LIST, anything)
        if restored_id is not None:
            self._call("restore_state", partial(function.restore_state, self._list.get()))

    def _refuse_another(self, restored: Iterable[str], mine: str) -> None:
        others = [name for name in dict.fromkeys(restored) if name != mine]
        if others:
            context = self._operator.context
            raise JobChangedError(
                f"operator {context.name!r} (uid {context.uid!r}): checkpoint {context.restored_checkpoint_id()} holds"
                f" state of function {', '.join(others)}, and the function is {mine} now\n"
                f"  if it takes over this state, give its class state_id = {others[0]!r}; otherwise give the operator"
                " another uid and allow non-restored state (--allow-non-restored-state)"
            )

    def snapshot(self, checkpoint_id: int) -> None:
        """A checkpoint begins."""
        self._call("snapshot_state", partial(self._store, checkpoint_id))

    def _store(self, checkpoint_id: int) -> None:
        stored = self._function.snapshot_state(checkpoint_id)
        if self._list is None:
            if stored is not None:
                raise TypeError(f"that of a CheckpointedFunction updates its states, and returned {shorten(stored)}")
        elif not isinstance(stored, list | tuple):
            raise TypeError(f"it must return a list of elements, and returned {shorten(stored)}")
        else:
            self._list.update(stored)

    def _call(self, what: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except WeirError:
            raise
        except Exception as error:
            raise self._operator.user_error(f"{what} of function", NO_RECORD, error) from error

    def fingerprint(self) -> object:
        """The attributes of the function, which become state with the next snapshot."""
        plain = (bool, int, float, str, bytes, tuple, list, dict)
        held = {name: value for name, value in vars(self._function).items() if isinstance(value, plain)}
        return repr(sorted(held.items()))


class FunctionStateOperator(Operator):
    """An operator whose function has state: everything else is done by the operator ``kind`` itself."""

    def __init__(self, kind: Callable[[Any], Any], function: Any) -> None:
        self.inner: Operator = kind(own_instance(function))
        """Does the work."""
        # Some kinds take a copy of their own.
        self._held = FunctionState(self, self.inner.function)

    @property
    def timers(self) -> Any:
        """Those that its function may set; ``None`` where it cannot."""
        return getattr(self.inner, "timers", None)

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        self.inner.lineage = self.lineage
        self.inner.setup(context, output)

    def initialize_state(self) -> None:
        self.inner.initialize_state()
        self._held.initialize()

    def open(self) -> None:
        self.inner.open()

    def process_batch(self, batch: Batch) -> None:
        self.inner.process_batch(batch)

    def process_watermark(self, timestamp_ms: int) -> None:
        self.inner.process_watermark(timestamp_ms)

    def process_watermark_status(self, idle: bool) -> None:
        self.inner.process_watermark_status(idle)

    def on_processing_time_ns(self, time_ns: int) -> None:
        self.inner.on_processing_time_ns(time_ns)

    def snapshot_state(self, checkpoint_id: int) -> None:
        self.inner.snapshot_state(checkpoint_id)
        self._held.snapshot(checkpoint_id)

    def finish(self) -> None:
        self.inner.finish()

    def close(self) -> None:
        self.inner.close()

    def abandon(self) -> None:
        self.inner.abandon()

    def fingerprint(self) -> object:
        return self.inner.fingerprint(), self._held.fingerprint()


class TwoInputFunctionStateOperator(FunctionStateOperator, TwoInputOperator):
    """The same with two inputs."""

    def process_batch_1(self, batch: Batch) -> None:
        self.inner.process_batch(batch)

    def process_batch_2(self, batch: Batch) -> None:
        assert isinstance(self.inner, TwoInputOperator)
        self.inner.process_batch_2(batch)


def operator_of(kind: Callable[..., Any], function: Any, *more: Any) -> OperatorFactory:
    """Makes operators ``kind(function, *more)``, with the operator state of the function if it has any."""
    if not has_state(function):
        return partial(kind, function, *more)
    made = kind if not more else partial(_with_more, kind, more)
    two = isinstance(kind, type) and issubclass(kind, TwoInputOperator)
    return partial(TwoInputFunctionStateOperator if two else FunctionStateOperator, made, function)


def _with_more(kind: Callable[..., Any], more: tuple[Any, ...], function: Any) -> Any:
    return kind(function, *more)
