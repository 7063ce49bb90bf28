"""Reducing and aggregating states that log what they do.

What is added is folded by the state below; then what is stored there is logged, once per key of a batch. So a replay
needs none of the program's functions, and an accumulator that is changed in place is logged as it is at that moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Protocol, TypeVar

from state_backends.api import AggregatingState, KeyedState, KeyedStateBackend, Namespaces, ReducingState
from state_backends.changelog.changes import PUT
from state_backends.changelog.log import ChangeLog
from state_backends.changelog.states import LoggedState, StoredValues, log_merged, log_what_is_there


class FoldingState(KeyedState, Protocol):
    """What reducing and aggregating states have in common."""

    failed_index: int | None

    def get(self) -> Any:
        """The result of the current key and namespace, or ``None``."""

    def add(self, value: Any) -> None:
        """Fold a value in."""

    def get_many(self, keys: Sequence[Any], namespaces: Namespaces = None) -> list[Any]:
        """:meth:`get` for each key."""

    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Merge what some namespaces of the current key hold into that of ``target``."""


FoldingT = TypeVar("FoldingT", bound=FoldingState)


class _LoggedFoldingState(LoggedState[FoldingT]):
    """What both have.

    :ivar failed_index: after the program's function failed in a batch: the index of its record
    """

    __slots__ = ("_stored", "failed_index")

    def __init__(
        self,
        inner: FoldingT,
        stored: StoredValues,
        backend: KeyedStateBackend,
        log: ChangeLog,
        index: int,
    ) -> None:
        """A state over another.

        :param stored: the same state, which gives what is stored instead of a result
        """
        super().__init__(inner, backend, log, index)
        self._stored = stored
        self.failed_index: int | None = None

    def get(self) -> Any:
        """The result of the current key and namespace, or ``None``."""
        return self._inner.get()

    def add(self, value: Any) -> None:
        """Fold a value in."""
        namespaces = None if self._namespace is None else [self._namespace]
        try:
            self._inner.add(value)
        finally:
            log_what_is_there(self._stored, self._log, self._index, [self._backend.current_key], namespaces)

    def get_many(self, keys: Sequence[Any], namespaces: Namespaces = None) -> list[Any]:
        """:meth:`get` for each key."""
        return self._inner.get_many(keys, namespaces)

    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Merge what some namespaces of the current key hold into that of ``target``."""
        log_merged(self._inner, self._stored, self._log, self._index, self._backend.current_key, target, sources)

    def _failed(self, keys: Sequence[Any], namespaces: Namespaces) -> None:
        self.failed_index = self._inner.failed_index
        log_what_is_there(self._stored, self._log, self._index, keys, namespaces)


class LoggedReducingState(_LoggedFoldingState[ReducingState]):
    """One value into which added values are folded."""

    __slots__ = ()

    def add_many(
        self, keys: Sequence[Any], values: Sequence[Any], out: list[Any], namespaces: Namespaces = None
    ) -> None:
        """:meth:`add` for each record, appending the value after each to ``out``."""
        done = len(out)
        try:
            self._inner.add_many(keys, values, out, namespaces)
        except Exception:
            self._failed(keys, namespaces)
            raise
        after = islice(out, done, None)
        if not keys:
            return
        if namespaces is None:
            last = dict(zip(keys, after, strict=True))
            self._log.append_made(PUT, self._index, list(last), None, list(last.values()))
        else:
            last_of = dict(zip(zip(keys, namespaces, strict=True), after, strict=True))
            touched, places = map(list, zip(*last_of, strict=True))
            self._log.append_made(PUT, self._index, touched, places, list(last_of.values()))


class LoggedAggregatingState(_LoggedFoldingState[AggregatingState]):
    """One accumulator."""

    __slots__ = ()

    def add_many(
        self, keys: Sequence[Any], namespaces: Namespaces, values: Sequence[Any], out: list[Any] | None = None
    ) -> None:
        """:meth:`add` for each record; with ``out``, appends the result after each."""
        try:
            self._inner.add_many(keys, namespaces, values, out)
        except Exception:
            self._failed(keys, namespaces)
            raise
        if not keys:
            return
        if namespaces is None:
            touched, places = list(dict.fromkeys(keys)), None
        else:
            touched, places = map(list, zip(*dict.fromkeys(zip(keys, namespaces, strict=True)), strict=True))
        self._log.append_made(PUT, self._index, touched, places, self._stored.get_many(touched, places))
