"""How a Python value becomes bytes and comes back as exactly that value.

The base is msgpack. Where msgpack is not exact, an array that begins with an extension mark stands in:

* a tuple is ``[mark(TUPLE), *elements]``, so that tuples and lists stay apart;
* a value of a registered type is ``[mark(code, version), state]``, where ``state`` is whatever plain
  value the type's ``to_state`` returned.

The mark is an *element* of the array and not a nested blob, because then one packer walks the whole
value in C and Python is only called once per tuple. What cannot come back exactly is refused: sets have
no order of their own, and subclasses (``Enum``, ``NamedTuple``, ``defaultdict``, numpy scalars) would
come back as their base. Two things to know: a dict's insertion order is part of its value, and a
``bytearray`` comes back as ``bytes``.

The encoding of a value depends on the value and its types only, so the bytes of a key identify it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgpack

from state_backends.base import CorruptStateError, StateSchemaError, StateSerializationError
from state_backends.codec.problems import explain_refusal
from state_backends.codec.registry import TypeRegistry, default_registry

_TUPLE_CODE = 0
_TUPLE_MARK = msgpack.ExtType(_TUPLE_CODE, b"")


class _Mark:
    """What an extension mark decodes to: the first element of an array that is not a plain list."""

    __slots__ = ("code", "version")

    def __init__(self, code: int, version: int) -> None:
        self.code = code
        self.version = version


_DECODED_TUPLE_MARK = _Mark(_TUPLE_CODE, 0)


class StateCodec:
    """Encoder and decoder over one registry of types.

    :ivar pack: the raw encoder, for loops: it raises whatever msgpack raises. On any exception call
        :meth:`refusal` with the same value to get the error to show.

    Not re-entrant: a ``to_state`` must return a plain value and must not encode with the same codec.
    """

    def __init__(self, registry: TypeRegistry | None = None) -> None:
        self.registry = default_registry if registry is None else registry
        self._packer = msgpack.Packer(
            default=self._pack_special, strict_types=True, use_bin_type=True, autoreset=True
        )
        self.pack: Callable[[Any], bytes] = self._packer.pack

    def __deepcopy__(self, memo: dict[int, Any]) -> StateCodec:
        # A codec holds no state between calls and the C packer cannot be copied: copies share it.
        return self

    def encode(self, value: Any, what: str = "value") -> bytes:
        """The bytes of a value.

        :param what: how an error message names the value
        :raises StateSerializationError: naming the path inside the value, the type and how to mend it
        """
        try:
            return self.pack(value)
        except Exception as problem:
            raise self.refusal(value, what, problem) from problem

    def decode(self, data: bytes, what: str = "encoded state") -> Any:
        """The value of some bytes.

        :param what: how an error message names the bytes
        :raises CorruptStateError: when the bytes are no encoded value
        :raises StateSchemaError: when a type code is unknown or its version newer than the program's
        """
        try:
            return msgpack.unpackb(
                data, list_hook=self._unpack_array, ext_hook=self._unpack_mark, strict_map_key=False
            )
        except StateSchemaError:
            raise
        except Exception as problem:
            raise CorruptStateError(what, f"not an encoded value ({problem})") from problem

    def copy(self, value: Any) -> Any:
        """A copy of a value that shares nothing mutable with it."""
        return self.decode(self.encode(value))

    def refusal(self, value: Any, what: str, problem: Exception) -> StateSerializationError:
        """The error that says which part of ``value`` made :attr:`pack` raise ``problem``."""
        return explain_refusal(value, what, self.registry, problem)

    def sorted_map(self, entries: dict[Any, Any]) -> dict[Any, Any]:
        """The same map with its entries in the order of their encoded keys."""
        return {key: entries[key] for key in sorted(entries, key=self.encode)}

    def array_header(self, length: int) -> bytes:
        """The bytes that stand before ``length`` encoded elements to make them one encoded list."""
        header: bytes = self._packer.pack_array_header(length)
        return header

    def map_header(self, length: int) -> bytes:
        """The bytes that stand before ``length`` pairs of encoded key and value to make them one encoded map."""
        header: bytes = self._packer.pack_map_header(length)
        return header

    def _pack_special(self, value: Any) -> Any:
        kind = type(value)
        if kind is tuple:
            return [_TUPLE_MARK, *value]
        registered = self.registry.for_class(kind)
        if registered is None:
            raise TypeError(f"no registered type for {kind.__qualname__}")
        return [registered.mark, registered.to_state(value)]

    def _unpack_array(self, items: list[Any]) -> Any:
        if not items or type(items[0]) is not _Mark:
            return items
        mark = items[0]
        if mark.code == _TUPLE_CODE:
            return tuple(items[1:])
        return self.restore_object(mark.code, mark.version, items[1])

    def _unpack_mark(self, code: int, data: bytes) -> _Mark:
        if code == _TUPLE_CODE:
            return _DECODED_TUPLE_MARK
        # Also where it marks nothing: it would pass for a value.
        self.registry.check_code(code)
        return _Mark(code, int.from_bytes(data, "big"))

    def restore_object(self, code: int, version: int, state: Any) -> Any:
        """The object that was written as ``state`` under a code and version."""
        return self.registry.restore(code, version, state)


_default_codec: StateCodec | None = None


def default_codec() -> StateCodec:
    """The codec over the registry that :func:`register_type` fills."""
    global _default_codec  # noqa: PLW0603 - one codec per process is the point: packers are reused
    if _default_codec is None:
        _default_codec = StateCodec()
    return _default_codec
