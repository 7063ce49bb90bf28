"""Why a value was refused by the encoder: finds the path, names the type, says how to mend it.

This runs only after the fast encoder has failed, so it may walk the value in plain Python.
"""

from __future__ import annotations

import datetime
from typing import Any

from state_backends.base import StateSerializationError
from state_backends.codec.registry import TypeRegistry

_PLAIN = (type(None), bool, float, bytes, bytearray, memoryview)
_MAX_DEPTH = 200
_MAX_REPR_CHARS = 80


def explain_refusal(value: Any, what: str, registry: TypeRegistry, problem: Exception) -> StateSerializationError:
    """The error for a value that could not be encoded.

    :param what: how the message names the whole value; paths continue it, such as ``value['a'][3]``
    :param problem: what the encoder raised, used when no single part is to blame
    """
    found = _find(value, what, registry, 0)
    if found is None:
        return StateSerializationError(f"{what} cannot be written to state: {problem}.", what)
    path, reason = found
    return StateSerializationError(f"{path} cannot be written to state: {reason}", path)


def _find(value: Any, path: str, registry: TypeRegistry, depth: int) -> tuple[str, str] | None:
    """The path of the first part to blame and the reason, or ``None`` when each part is fine."""
    kind = type(value)
    if depth > _MAX_DEPTH:
        return path[:_MAX_REPR_CHARS] + "...", "it is nested too deeply, or contains itself. Store a flat form."
    if kind is int:
        return None if -(1 << 63) <= value < (1 << 64) else (path, _too_big(value))
    if kind is str:
        return _find_in_text(value, path)
    if kind in _PLAIN:
        return None
    if kind is dict:
        return _find_in_dict(value, path, registry, depth)
    if kind is list or kind is tuple:
        for index, element in enumerate(value):
            found = _find(element, f"{path}[{index}]", registry, depth + 1)
            if found is not None:
                return found
        return None
    return _find_in_object(value, path, registry, depth)


def _find_in_dict(value: dict[Any, Any], path: str, registry: TypeRegistry, depth: int) -> tuple[str, str] | None:
    for key, element in value.items():
        found = _find(key, f"{path}.key({_short(key)})", registry, depth + 1)
        if found is None:
            found = _find(element, f"{path}[{_short(key)}]", registry, depth + 1)
        if found is not None:
            return found
    return None


def _find_in_text(value: str, path: str) -> tuple[str, str] | None:
    try:
        value.encode()
    except UnicodeEncodeError as problem:
        return path, (
            f"the text {_short(value)} has a lone surrogate at index {problem.start}, which no UTF-8 has. "
            "Clean it with value.encode('utf-8', 'replace').decode()."
        )
    return None


def _find_in_object(value: Any, path: str, registry: TypeRegistry, depth: int) -> tuple[str, str] | None:
    registered = registry.for_class(type(value))
    if registered is None:
        return path, _unknown_type(value)
    try:
        state = registered.to_state(value)
    except Exception as problem:
        return path, f"to_state of {type(value).__qualname__} failed: {problem}."
    return _find(state, f"{path}.state", registry, depth + 1)


def _too_big(value: int) -> str:
    return f"the int {_short(value)} does not fit 64 bits. Store it as str, bytes or Decimal."


def _unknown_type(value: Any) -> str:
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    for base, hint in (
        (int, "Store int(value), or register the class with register_type."),
        (str, "Store str(value) or value.value, or register the class with register_type."),
        (float, "Store float(value)."),
        (bytes, "Store bytes(value)."),
        (tuple, "Register it with register_record_type, or store tuple(value)."),
        (list, "Store list(value)."),
        (dict, "Store dict(value)."),
        (datetime.date, "Convert it to the exact datetime class."),
    ):
        if isinstance(value, base):
            return f"it is a {name}, a subclass of {base.__name__}, and would come back as its base. {hint}"
    if isinstance(value, (set, frozenset)):
        return f"a {kind.__name__} has no order of its own. Store a sorted list, or a dict with True as values."
    if isinstance(value, complex):
        return "complex numbers have no encoding. Store (value.real, value.imag)."
    if hasattr(value, "item") and hasattr(value, "dtype"):
        return f"it is a {name}. Store value.item() or value.tolist()."
    return (
        f"it is a {name}, which is not registered. "
        "Register the class with register_type or register_record_type, or store plain values."
    )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_REPR_CHARS else text[: _MAX_REPR_CHARS - 3] + "..."
