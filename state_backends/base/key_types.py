"""What a key may be, which Java type it stands for, and its Java-compatible hash code.

Python says ``1 == 1.0 == True`` and finds all three under one dict entry; in Java, and in a file, they
are three keys. So a keyed stream has *one* declared key type, checked per batch, and inside it plain
Python equality is right. Floats are no keys at all: NaN is unequal to itself and -0.0 == 0.0.

| key type      | Python | Java hash code                                      |
|---------------|--------|-----------------------------------------------------|
| INT           | int    | the value (declared; must fit 32 bits)              |
| LONG          | int    | (int) (v ^ (v >>> 32)); what an ``int`` is otherwise |
| STRING        | str    | base-31 polynomial over UTF-16 units, from 0        |
| BYTES         | bytes  | Arrays.hashCode(byte[]): signed bytes, from 1       |
| BOOL          | bool   | 1231 or 1237                                        |
| TUPLE(a, ...) | tuple  | Arrays.hashCode(Object[]): 31 * h + element, from 1 |
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import countOf
from typing import Any

from state_backends.base.errors import KeyTypeError
from state_backends.base.shapes import list_of, row, text

_UINT32 = 0xFFFFFFFF
_UINT64 = 0xFFFFFFFFFFFFFFFF


@dataclass(frozen=True, slots=True)
class KeyType:
    """The declared type of all keys of one keyed stream. Use the constants and :func:`tuple_of`.

    :ivar name: INT, LONG, STRING, BYTES, BOOL or TUPLE
    :ivar elements: the types of a tuple's elements, else empty
    """

    name: str
    elements: tuple[KeyType, ...] = ()

    def __str__(self) -> str:
        if self.name != "TUPLE":
            return self.name
        return f"TUPLE({', '.join(map(str, self.elements))})"

    @property
    def python_type(self) -> type:
        return _PYTHON_TYPES[self.name]

    def to_state(self) -> list[Any]:
        return [self.name, [element.to_state() for element in self.elements]]

    @classmethod
    def from_state(cls, state: Sequence[Any]) -> KeyType:
        """The key type that :meth:`to_state` described.

        :raises KeyTypeError: when the name is none of ours
        """
        name, elements = state
        if name not in _PYTHON_TYPES or (elements and name != "TUPLE"):
            raise KeyTypeError(f"unknown key type {name!r}: written by a newer version?")
        return cls(name, tuple(cls.from_state(element) for element in elements))


def key_type_shape(value: Any) -> None:
    """The shape of the plain form of a :class:`KeyType`."""
    row(text, list_of(key_type_shape))(value)


_PYTHON_TYPES: dict[str, type] = {"INT": int, "LONG": int, "STRING": str, "BYTES": bytes, "BOOL": bool, "TUPLE": tuple}

INT = KeyType("INT")
LONG = KeyType("LONG")
STRING = KeyType("STRING")
BYTES = KeyType("BYTES")
BOOL = KeyType("BOOL")

_SCALARS: dict[type, KeyType] = {int: LONG, str: STRING, bytes: BYTES, bool: BOOL}


def tuple_of(*elements: KeyType) -> KeyType:
    """The type of tuples whose elements have the given types, in order.

    :raises KeyTypeError: when no element is given: all keys would be the same
    """
    if not elements:
        raise KeyTypeError("a tuple key needs at least one element: every empty tuple is the same key.")
    return KeyType("TUPLE", elements)


def infer_key_type(key: Any) -> KeyType:
    """The key type of one example key. An ``int`` is a LONG unless the user declares INT.

    :raises KeyTypeError: when such a value can be no key
    """
    scalar = _SCALARS.get(type(key))
    if scalar is not None:
        return scalar
    if type(key) is tuple:
        return tuple_of(*map(infer_key_type, key))
    raise KeyTypeError(f"{key!r} of type {_type_name(key)} cannot be a key: {_why_no_key(key)}")


def check_keys(keys: Sequence[Any], key_type: KeyType) -> None:
    """Refuse a batch in which some key has another type than declared.

    One C-speed pass over the batch for scalar types; tuples are checked column by column.

    :raises KeyTypeError: naming index, value, expected and found type of the first such key
    """
    good = countOf(map(type, keys), key_type.python_type) == len(keys)
    if good and (key_type.name != "TUPLE" or _tuples_are_good(keys, key_type)):
        return
    for index, key in enumerate(keys):
        if not _has_type(key, key_type):
            raise KeyTypeError(
                f"key {index} of the batch is {key!r} of type {_describe(key)}, but the stream's keys are "
                f"declared {key_type}. Python would mix up keys of different types (1 == 1.0 == True): "
                f"return one type from the key selector, or declare another key type."
            )


def check_lengths(keys: Sequence[Any], *others: Sequence[Any]) -> None:
    """Assert that a batch has for each key one of everything else."""
    # A batch cut at the wrong record would silently shift values to other keys.
    for other in others:
        assert len(other) == len(keys), f"a batch of {len(keys)} keys came with {len(other)} values"


def _tuples_are_good(keys: Sequence[tuple[Any, ...]], key_type: KeyType) -> bool:
    if set(map(len, keys)) - {len(key_type.elements)}:
        return False
    for column, element_type in zip(zip(*keys, strict=True), key_type.elements, strict=False):
        if set(map(type, column)) != {element_type.python_type}:
            return False
        if element_type.name == "TUPLE" and not _tuples_are_good(column, element_type):
            return False
    return True


def _has_type(key: Any, key_type: KeyType) -> bool:
    kind: type = type(key)
    if kind is not key_type.python_type:
        return False
    if key_type.name != "TUPLE":
        return True
    if len(key) != len(key_type.elements):
        return False
    return all(map(_has_type, key, key_type.elements))


def _type_name(value: Any) -> str:
    return type(value).__qualname__


def _describe(key: Any) -> str:
    if type(key) is tuple:
        return f"tuple({', '.join(map(_describe, key))})"
    return _type_name(key)


def _why_no_key(key: Any) -> str:
    if isinstance(key, float):
        return (
            "floats compare in ways that lose keys (NaN is unequal to itself, -0.0 equals 0.0, 1.0 equals 1)."
            " Use an int of a smaller unit, such as cents, or a str."
        )
    if key is None:
        return "None has no hash code of its own. Use a value that stands for 'no key'."
    if isinstance(key, (int, str, bytes, tuple)):
        return "it would come back from a snapshot as its base type. Convert it to that type first."
    return "keys are int, str, bytes, bool, or tuples of those. Convert it in the key selector."


def java_hash_code(key: Any, key_type: KeyType) -> int:
    """The signed 32-bit ``hashCode`` that Java gives this key.

    :raises KeyTypeError: when the key is not of that type or an integer does not fit its width
    """
    check_keys([key], key_type)
    code = java_hash_function(key_type)(key)
    return code - 0x100000000 if code >= 0x80000000 else code


def java_hash_function(key_type: KeyType) -> Callable[[Any], int]:
    """The hash code function of one key type, as an unsigned 32-bit value, trusting its argument's type."""
    if key_type.name == "TUPLE":
        return _tuple_hash_function(tuple(map(java_hash_function, key_type.elements)))
    return _HASH_FUNCTIONS[key_type.name]


def _hash_int(key: int) -> int:
    if not -0x80000000 <= key < 0x80000000:
        raise KeyTypeError(
            f"key {key} does not fit the declared key type INT (32 bits). Declare LONG, or narrow the key."
        )
    return key & _UINT32


def _hash_long(key: int) -> int:
    if not -0x8000000000000000 <= key < 0x8000000000000000:
        raise KeyTypeError(f"key {key} does not fit 64 bits. Use a str or bytes key instead.")
    bits = key & _UINT64
    return (bits ^ (bits >> 32)) & _UINT32


def _hash_string(key: str) -> int:
    units: Sequence[int]
    if key.isascii():
        units = key.encode("ascii")
    else:
        try:
            encoded = key.encode("utf-16-le")
        except UnicodeEncodeError as problem:
            raise KeyTypeError(
                f"key {key!r} has a lone surrogate at index {problem.start}, which no file can hold. Clean it with"
                " key.encode('utf-8', 'replace').decode()."
            ) from None
        units = struct.unpack(f"<{len(encoded) // 2}H", encoded)
    code = 0
    for unit in units:
        code = (31 * code + unit) & _UINT32
    return code


def _hash_bytes(key: bytes) -> int:
    code = 1
    for byte in key:
        code = (31 * code + (byte if byte < 128 else byte - 256)) & _UINT32
    return code


def _hash_bool(key: bool) -> int:
    return 1231 if key else 1237


def _tuple_hash_function(elements: tuple[Callable[[Any], int], ...]) -> Callable[[Any], int]:
    def hash_tuple(key: tuple[Any, ...]) -> int:
        code = 1
        for function, element in zip(elements, key, strict=True):
            code = (31 * code + function(element)) & _UINT32
        return code

    return hash_tuple


_HASH_FUNCTIONS: dict[str, Callable[[Any], int]] = {
    "INT": _hash_int,
    "LONG": _hash_long,
    "STRING": _hash_string,
    "BYTES": _hash_bytes,
    "BOOL": _hash_bool,
}
