"""The options that every method of the fluent API takes beside its function, and the checks that only the call itself
can make.

Checks here refuse values that could not even be written into the graph (not a function, not a number). ``validation``
judges over the whole graph whether numbers and names make sense together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TypedDict, runtime_checkable

from engine.elements.errors import JobGraphError, shorten
from engine.elements.operator import Operator, OperatorFactory
from engine.elements.suggestions import nearest
from engine.graph.naming import name_problem
from engine.graph.partitioner import Partitioner
from state_backends.base import KeyType


class OperatorOptions(TypedDict, total=False):
    """Keywords of every method that adds an operator; each may be left out.

    ``name``             its name in messages, metrics and the report; made from the kind of operator
                         otherwise;
    ``uid``              the key of its state; made from the name otherwise. Give one to every
                         operator whose state shall survive changes of the job;
    ``parallelism``      number of subtasks; the job's otherwise;
    ``max_parallelism``  number of key groups; the job's, or Flink's default for the parallelism, otherwise;
    ``chain``            ``False`` keeps the operator out of chains with its neighbours.
    """

    name: str | None
    uid: str | None
    parallelism: int | None
    max_parallelism: int | None
    chain: bool


class StreamTransform(Protocol):
    """Something that ``Stream.via`` and ``Stream.sink`` take: a description of an operator.

    It may also have these attributes, which the graph reads when they are there (``TransformDemands``):
    ``parallelism`` and ``max_parallelism`` the operator cannot do without, a ``partitioner`` or a ``key``
    selector (with ``key_type``) for its input, and ``requires_key`` when it reaches keyed state.
    """

    @property
    def name(self) -> str:
        """Stem of the operator's name."""

    def create_operator(self) -> Operator:
        """A fresh operator for one subtask of one attempt."""


@runtime_checkable
class SinkTopology(Protocol):
    """A sink of more than one operator: for example writers, and committers after them (Flink: ``Sink`` of version 2
    with ``SupportsCommitter``, ``SupportsPreCommitTopology``, ``SupportsPostCommitTopology``).

    It adds its operators with the methods that a stream has (``via``, ``sink``, ``global_``, ...) and so needs nothing
    of the graph. ``stream`` is the stream it ends; ``options`` are the keywords of the call, meant for its first
    operator. A ``name`` or ``uid`` among them is the stem of the names of the others, so that each keeps its state.
    """

    def add_to(self, stream: Any, options: OperatorOptions) -> None:
        """End ``stream`` in the operators of this sink."""


class TransformDemands:
    """The optional attributes of a ``StreamTransform``, ``None`` where it has none."""

    __slots__ = ("key", "key_type", "max_parallelism", "parallelism", "partitioner", "requires_key")

    def __init__(self, transform: object) -> None:
        self.parallelism: int | None = getattr(transform, "parallelism", None)
        self.max_parallelism: int | None = getattr(transform, "max_parallelism", None)
        self.partitioner: Partitioner | None = getattr(transform, "partitioner", None)
        self.key: Any = getattr(transform, "key", None)
        self.key_type: KeyType | None = getattr(transform, "key_type", None)
        self.requires_key = bool(getattr(transform, "requires_key", False))

    def merged_into(self, options: OperatorOptions, method: str, what: str) -> OperatorOptions:
        """``options`` with the demanded numbers filled in.

        Raises ``JobGraphError`` when the user asks for another number than the operator demands.
        """
        merged = options.copy()
        demands = {"parallelism": self.parallelism, "max_parallelism": self.max_parallelism}
        for keyword, demanded in demands.items():
            asked = options.get(keyword)
            if demanded is not None and asked not in (None, demanded):
                raise JobGraphError(
                    f"{method}: {what} demands {keyword}={demanded}, the call asks for {keyword}={asked}\n"
                    f"  fix: leave {keyword}= out"
                )
        if self.parallelism is not None:
            merged["parallelism"] = self.parallelism
        if self.max_parallelism is not None:
            merged["max_parallelism"] = self.max_parallelism
        return merged


def check_options(method: str, options: Mapping[str, Any]) -> None:
    """Refuse keywords that no operator takes, and values that are not numbers."""
    known = OperatorOptions.__annotations__
    for keyword, value in options.items():
        if keyword not in known:
            close = nearest(keyword, known)
            hint = f"did you mean {close}=?" if close else f"it takes {', '.join(f'{k}=' for k in known)}"
            raise JobGraphError(f"{method} has no option {keyword}=; {hint}")
        if keyword in ("parallelism", "max_parallelism") and value is not None:
            check_count(method, keyword, value)
        if keyword == "chain":
            check_type(method, "chain=", value, bool)


def check_names(method: str, names: Iterable[object], *, at_least: int = 0) -> None:
    """Raise ``JobGraphError`` unless all are names of columns, and there are enough of them."""
    found = list(names)
    for name in found:
        if type(name) is not str or not name:
            raise JobGraphError(f"{method}: the name of a column is a str that is not empty, got {name!r}")
    if len(found) < at_least:
        raise JobGraphError(f"{method}: name {at_least} column at least")


def check_count(method: str, keyword: str, value: object) -> None:
    """Refuse a value that is not a whole number. ``True`` is an ``int`` to Python, but not to a reader."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise JobGraphError(
            f"{method}: {keyword} must be a whole number, not {shorten(value)} of type {type(value).__name__}"
        )


def check_type(method: str, what: str, value: object, wanted: type) -> None:
    """Refuse a value that is not of the wanted type."""
    if not isinstance(value, wanted):
        raise JobGraphError(
            f"{method}: {what} must be of type {wanted.__name__}, not {shorten(value)} of type {type(value).__name__}"
        )


def check_instance(method: str, what: str, value: object, wanted: type) -> None:
    """Refuse a value that is not of the wanted type, and the class itself in place of an object."""
    if isinstance(value, type) and issubclass(value, wanted):
        raise JobGraphError(
            f"{method}: {what} must be an object, not the class {value.__name__}\n"
            f"  fix: make one, with {value.__name__}(...) or what it offers for that"
        )
    check_type(method, what, value, wanted)


def check_callable(method: str, what: str, value: object, *, may_have_state: bool = False) -> None:
    """Refuse a value that cannot be called where a function is wanted, and one with operator state where the operator
    would not keep it."""
    if not callable(value):
        raise JobGraphError(f"{method}: {what} must be a function, not {shorten(value)} of type {type(value).__name__}")
    if not may_have_state and (hasattr(value, "snapshot_state") or hasattr(value, "restore_state")):
        raise JobGraphError(
            f"{method}: {what} is {shorten(value)}, whose snapshot_state() and restore_state() would never be called\n"
            "  fix: keep operator state in the function of map, flat_map, filter, process, a source or a sink"
        )


def check_callable_or_methods(method: str, what: str, value: object, *names: str) -> None:
    """Refuse a value that is neither a function nor an object (or the class of objects) with the named methods."""
    if not callable(value) and not all(callable(getattr(value, name, None)) for name in names):
        raise JobGraphError(
            f"{method}: {what} must be a function, or an object with {_calls(names)}, not"
            f" {shorten(value)} of type {type(value).__name__}"
        )


def check_methods(method: str, what: str, value: object, *names: str) -> None:
    """Refuse an object that lacks a method it will be asked for, and the class of such objects."""
    if isinstance(value, type):
        raise JobGraphError(
            f"{method}: {what} must be an object, not the class {value.__name__}\n"
            f"  fix: call the class, {value.__name__}(...)"
        )
    missing = [name for name in names if not callable(getattr(value, name, None))]
    if missing:
        raise JobGraphError(
            f"{method}: {what} must have {_calls(missing)}, which "
            f"{shorten(value)} of type {type(value).__name__} has not"
        )


def check_function_object(method: str, what: str, value: object, *kinds: type) -> type:
    """Which of ``kinds`` an object, or a class of such objects, is derived from; refuse it when it is none."""
    for kind in kinds:
        if isinstance(value, kind) or (isinstance(value, type) and issubclass(value, kind)):
            return kind
    wanted = " or ".join(f"{kind.__name__}" for kind in kinds)
    raise JobGraphError(
        f"{method}: {what} must be a {wanted}, or a class of such, not {shorten(value)} of type "
        f"{type(value).__name__}\n  fix: derive its class from {wanted}"
    )


def _calls(names: Iterable[str]) -> str:
    return " and ".join(f"{name}()" for name in names)


def operator_stem(method: str, transform: object) -> str:
    """Stem of the operator's name: the transform's own name, otherwise that of the method it was given to."""
    name = getattr(transform, "name", None)
    if name is None:
        return method
    if problem := name_problem(name):
        raise JobGraphError(f"{method}: {type(transform).__name__}: {problem}")
    assert isinstance(name, str)
    return name


def operator_factory(method: str, transform: object) -> OperatorFactory:
    """Returns the factory of operators of a ``StreamTransform``, or of a plain function that returns a fresh
    operator.

    Raises ``JobGraphError`` for an operator itself: every subtask and every attempt needs its own.
    """
    if isinstance(transform, Operator):
        raise JobGraphError(
            f"{method}: {type(transform).__name__} is one operator, but every subtask and every restart "
            f"needs a fresh one\n"
            f"  fix: pass a function that makes it, as in lambda: {type(transform).__name__}(...)"
        )
    create = getattr(transform, "create_operator", None)
    if callable(create):
        check_methods(method, "its argument", transform, "create_operator")
        factory: OperatorFactory = create
        return factory
    if callable(transform):
        return transform
    raise JobGraphError(
        f"{method}: {shorten(transform)} of type {type(transform).__name__} makes no operator\n"
        "  fix: pass an object with create_operator(), or a function that returns a fresh operator"
    )
