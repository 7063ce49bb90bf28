"""Reducing and aggregating state with time-to-live (TtlReducingState, TtlAggregatingState).

What is added to the inner state is ``(now, value)``, or ``(now,)`` to put off the end and change nothing else. The
functions over pairs take the time from there, so they are pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from state_backends.api import AggregatingState, Namespaces, ReducingState
from state_backends.base import (
    MAX_TIME_MS,
    AggregatingStateDescriptor,
    Expiring,
    ReducingStateDescriptor,
    StateTtlConfig,
)
from state_backends.ttl.layer import NowMs, OnAccess, TtlLayer, picked

FoldingT = TypeVar("FoldingT", ReducingState, AggregatingState)


class _TtlFolding(TtlLayer[FoldingT]):
    """What both have."""

    __slots__ = ()

    @property
    def failed_index(self) -> int | None:
        """After the program's function failed in a batch: the index of its record."""
        return self._inner.failed_index

    @failed_index.setter
    def failed_index(self, index: int | None) -> None:
        self._inner.failed_index = index

    def get(self) -> Any:
        """The folded value or its result; ``None`` when nothing was added, or it has expired."""
        now = self._access()
        pair: Expiring | None = self._inner.get()
        if pair is None:
            return None
        if pair[0] <= self._config.latest_expired_ms(now):
            self._inner.clear()
            return pair[1] if self._config.returns_expired else None
        if self._config.refreshed_by_reading:
            self._inner.add((now,))
        return pair[1]

    def add(self, value: Any) -> None:
        """Fold a value in; what has expired does not count. ``None`` clears."""
        now = self._access()
        self._inner.add(None if value is None else (now, value))

    def get_many(self, keys: Sequence[Any], namespaces: Namespaces = None) -> list[Any]:
        """:meth:`get` for each key of a batch."""
        now = self._access(len(keys))
        pairs: list[Expiring | None] = self._inner.get_many(keys, namespaces)
        found = self._visible_many(keys, namespaces, pairs, now)
        if self._config.refreshed_by_reading:
            living = self._living(pairs, now)
            self._refresh_many(picked(keys, living), picked(namespaces, living), now)
        return found

    def _refresh_many(self, keys: list[Any], namespaces: Namespaces, now: int) -> None:
        raise AssertionError("a folding state says how a batch is refreshed")


class TtlReducingState(_TtlFolding[ReducingState]):
    """One value that expires, into which added values are folded."""

    __slots__ = ("_reduce",)

    def __init__(
        self,
        inner: ReducingState,
        config: StateTtlConfig,
        now_ms: NowMs,
        on_access: OnAccess | None,
        reduce_fn: Callable[[Any, Any], Any],
    ) -> None:
        super().__init__(inner, config, now_ms, on_access)
        self._reduce = reduce_fn

    def add_many(
        self, keys: Sequence[Any], values: Sequence[Any], out: list[Any], namespaces: Namespaces = None
    ) -> None:
        """:meth:`add` for each record of a batch, appending the value after each to ``out``.

        When the reduce function raises, ``out`` has one item per record done, and ``failed_index`` is the index of the
        record it failed on.
        """
        now = self._access(len(keys))
        added = [None if value is None else (now, value) for value in values]
        after: list[Expiring | None] = []
        try:
            self._inner.add_many(keys, added, after, namespaces)
        finally:
            out.extend([None if pair is None else pair[1] for pair in after])

    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Fold what has not expired in the source namespaces of the current key into ``target``."""
        now = self._access()
        limit = self._config.latest_expired_ms(now)
        sources = list(sources)
        merged: Expiring | None = None
        for namespace in (target, *sources):
            self._inner.set_namespace(namespace)
            pair = self._inner.get()
            if pair is not None and (pair[0] > limit or self._config.returns_expired):
                merged = pair if merged is None else (now, self._reduce(merged[1], pair[1]))
        for namespace in (target, *sources):
            self._inner.set_namespace(namespace)
            self._inner.clear()
        if merged is not None:
            self._inner.set_namespace(target)
            self._inner.add(merged)
        self._inner.set_namespace(self._namespace)

    def _refresh_many(self, keys: list[Any], namespaces: Namespaces, now: int) -> None:
        self._inner.add_many(keys, [(now,)] * len(keys), [], namespaces)


class TtlAggregatingState(_TtlFolding[AggregatingState]):
    """One accumulator that expires."""

    __slots__ = ()

    def add_many(
        self, keys: Sequence[Any], namespaces: Namespaces, values: Sequence[Any], out: list[Any] | None = None
    ) -> None:
        """:meth:`add` for each record of a batch; with ``out``, appends the result after each.

        When a function of the program raises, the exception passes through and ``failed_index`` is the index of the
        record it failed on.
        """
        now = self._access(len(keys))
        added = [None if value is None else (now, value) for value in values]
        if out is None:
            self._inner.add_many(keys, namespaces, added)
            return
        after: list[Expiring | None] = []
        try:
            self._inner.add_many(keys, namespaces, added, after)
        finally:
            out.extend([None if pair is None else pair[1] for pair in after])

    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Merge the accumulators that have not expired of the source namespaces of the current key into ``target``.

        :raises StateArgumentError: when the descriptor has no ``merge``
        """
        now = self._access()
        limit = self._config.latest_expired_ms(now)
        sources = list(sources)
        living = 0
        for namespace in (target, *sources):
            self._inner.set_namespace(namespace)
            pair = self._inner.get()
            if pair is not None and pair[0] <= limit and not self._config.returns_expired:
                self._inner.clear()
            elif pair is not None:
                living += 1
        self._inner.set_namespace(target)
        self._inner.merge_namespaces(target, sources)
        if living > 1:
            self._inner.add((now,))
        self._inner.set_namespace(self._namespace)

    def _refresh_many(self, keys: list[Any], namespaces: Namespaces, now: int) -> None:
        self._inner.add_many(keys, namespaces, [(now,)] * len(keys))


def wrapped_reducing(descriptor: ReducingStateDescriptor, config: StateTtlConfig) -> ReducingStateDescriptor:
    """The descriptor of the inner state: its function folds ``(now, value)`` into a pair (TtlReduceFunction)."""
    reduce_fn, ttl_ms = descriptor.reduce_fn, config.ttl_ms
    drops_expired = not config.returns_expired

    def reduce_pairs(pair: Expiring, added: tuple[Any, ...]) -> Expiring:
        now = added[0]
        if len(added) == 1:
            return now, pair[1]
        # The rule of StateTtlConfig.expired, without a call for each record.
        if drops_expired and (pair[0] + ttl_ms <= now or now >= MAX_TIME_MS):
            return now, added[1]
        return now, reduce_fn(pair[1], added[1])

    return replace(descriptor, ttl_wrapped=True, reduce_fn=reduce_pairs)


def wrapped_aggregating(descriptor: AggregatingStateDescriptor, config: StateTtlConfig) -> AggregatingStateDescriptor:
    """The descriptor of the inner state: its functions are over pairs (TtlAggregateFunction)."""
    create, add, get_result, merge = descriptor.create, descriptor.add, descriptor.get_result, descriptor.merge
    drops_expired, ttl_ms = not config.returns_expired, config.ttl_ms

    def add_to_pair(pair: Expiring | None, added: tuple[Any, ...]) -> Expiring | None:
        now = added[0]
        if len(added) == 1:
            return None if pair is None else (now, pair[1])
        if pair is None or (drops_expired and (pair[0] + ttl_ms <= now or now >= MAX_TIME_MS)):
            accumulator = create()
        else:
            accumulator = pair[1]
        accumulator = add(accumulator, added[1])
        # A lost accumulator stays lost, for the inner state to report.
        return None if accumulator is None else (now, accumulator)

    def result_of_pair(pair: Expiring) -> Expiring:
        return pair[0], get_result(pair[1])

    def merge_pairs(left: Expiring, right: Expiring) -> Expiring:
        assert merge is not None
        return max(left[0], right[0]), merge(left[1], right[1])

    return replace(
        descriptor,
        ttl_wrapped=True,
        create=_no_accumulator,
        add=add_to_pair,
        get_result=result_of_pair,
        merge=None if merge is None else merge_pairs,
    )


def _no_accumulator() -> None:
    """An accumulator is made when the first value is added to it, at the time that comes with the value."""
