"""Copies of a running case in memory: a search continues from one state in several directions.

Rules.
* A copy has its own version of everything that can change: tasks, channels, state, files, outputs, pending events.
  Everything that cannot change is the same object in all copies: functions, classes, modules, and the objects that the
  owner of the case names (plans, configuration, sources). Most of a run never changes, and a search forks thousands of
  times.
* For each attempt a plan makes new operators from the sinks of its world. So a plan that refers to a world is copied
  with that world, not shared.
* Copies never leave this process.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import Enum
from io import BytesIO
from pickle import FRAME, PROTO, Pickler, Unpickler
from types import BuiltinMethodType, FunctionType, MappingProxyType, ModuleType
from typing import Any

from msgpack import Packer

from engine.elements.errors import ConfigurationError

_ALWAYS_SHARED = (FunctionType, ModuleType, MappingProxyType, Packer)
_PROTOCOL = 3
"""The newest one whose memo has explicit numbers: a reader can begin with a memo that is full already."""
_RECURSION_LIMIT = 50_000
"""Tasks and channels form long chains, and each link takes a few frames."""

_Keep = Callable[[Any], tuple[Callable[[int], Any], tuple[int]]]

_objects_of: dict[int, list[Any]] = {}
"""By forker: the objects that its copies share."""


def _shared_by(forker: int) -> Callable[[int], Any]:
    return _objects_of[forker].__getitem__


class _SharingPickler(Pickler):
    """Writes a reference instead of a shared object."""

    def __init__(self, buffer: BytesIO, forker: int, kinds: frozenset[type], numbers: dict[int, int], keep: _Keep):
        super().__init__(buffer, _PROTOCOL)
        self._forker, self._kinds, self._numbers, self._keep = forker, kinds, numbers, keep

    def reducer_override(self, one: Any) -> Any:
        if one.__class__ in self._kinds or id(one) in self._numbers:
            return NotImplemented if one is _shared_by else self._keep(one)
        if isinstance(one, (type, Enum)):
            return self._keep(one)
        if isinstance(one, BaseException):
            # An error does not change after it was raised; its traceback would keep whole states alive.
            return self._keep(one.with_traceback(None))
        if one.__class__ is BuiltinMethodType and one.__self__ is _objects_of[self._forker]:
            # Once in a copy. It is compiled, and the copy calls it for each shared object.
            return _shared_by, (self._forker,)
        return NotImplemented


class Forker:
    """Makes copies of the states of one case."""

    def __init__(self, kinds: Iterable[type] = (), values: Iterable[type] = ()) -> None:
        """``kinds``: types whose objects never change. ``values``: those of them whose objects are made often, and are
        interchangeable when equal."""
        self._values = frozenset(values)
        self._kinds = frozenset([*_ALWAYS_SHARED, *kinds, *self._values])
        self._equal: dict[Any, Any] = {}
        self._token = max(_objects_of, default=0) + 1
        self._objects: list[Any] = []
        _objects_of[self._token] = self._objects
        self._get = _shared_by(self._token)
        # By identity, which stays valid because the objects are kept.
        self._numbers: dict[int, int] = {}
        self._prelude: tuple[Pickler, Unpickler] | None = None
        """A writer and a reader of shared objects and names of attributes. Their memos are those with which all copies
        begin, so that copies refer to these by number."""

    def share(self, *objects: Any) -> None:
        """Make all copies share these objects, which never change."""
        for one in objects:
            self._keep(one)

    def _keep(self, one: Any) -> tuple[Callable[[int], Any], tuple[int]]:
        if one.__class__ in self._values:
            one = self._first_equal(one)
        number = self._numbers.get(id(one))
        if number is None:
            number = self._numbers[id(one)] = len(self._objects)
            self._objects.append(one)
        return self._get, (number,)

    def _first_equal(self, one: Any) -> Any:
        try:
            return self._equal.setdefault((one.__class__, one), one)
        except TypeError:
            # A part of it is not hashable, so equal ones are not merged.
            return one

    def dump(self, state: Any) -> bytes:
        """The state as bytes, for :meth:`load`."""
        try:
            if self._prelude is None:
                self._begin_with(state)
            return self._written(state)[1]
        except RecursionError as error:
            raise ConfigurationError(
                "the job is too large to be checked: a copy of its state, from task to task and into what they hold, is"
                " nested deeper than Python's stack\n"
                "  fix: check a job with fewer operators, or search this one with weir explore"
            ) from error

    def _begin_with(self, state: Any) -> None:
        """Make a prelude for states like this one. It must hold nothing that can change."""
        written = self._written(state)[0].memo.copy().values()
        pickler, prelude = self._written([list(self._objects), [one for _, one in written if one.__class__ is str]])
        unpickler = Unpickler(BytesIO(prelude))
        unpickler.load()
        self._prelude = pickler, unpickler

    def _written(self, state: Any) -> tuple[Pickler, bytes]:
        buffer = BytesIO()
        pickler = _SharingPickler(buffer, self._token, self._kinds, self._numbers, self._keep)
        if self._prelude is not None:
            pickler.memo = self._prelude[0].memo
        pickler.dump(state)
        # One frame, so that it is read at once.
        body = buffer.getvalue()[len(PROTO) + 1 :]
        return pickler, PROTO + bytes([_PROTOCOL]) + FRAME + len(body).to_bytes(8, "little") + body

    def load(self, copy: bytes) -> Any:
        """Another state like the one that was dumped."""
        unpickler = Unpickler(BytesIO(copy))
        if self._prelude is not None:
            unpickler.memo = self._prelude[1].memo
        return unpickler.load()

    def close(self) -> None:
        _objects_of.pop(self._token, None)


@contextmanager
def forking() -> Iterator[None]:
    """Around a search: a deep recursion limit for long chains, and no garbage collector, which would walk all live
    objects at every copy. Dropped states are mostly cyclic, so the search calls :func:`collect` after each task."""
    limit, was_enabled = sys.getrecursionlimit(), gc.isenabled()
    sys.setrecursionlimit(max(limit, _RECURSION_LIMIT))
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)
        gc.unfreeze()
        if was_enabled:
            gc.enable()


def collect() -> None:
    """Free the memory of the abandoned state while it is still in the processor's cache: a hundred states at once cost
    five times as much each. What the search keeps has no cycles, so later collections need not walk it."""
    gc.collect()
    gc.freeze()
