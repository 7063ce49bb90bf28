"""Operator state: lists and maps that belong to a subtask and not to a key, such as the positions of a source.

When the parallelism changes, the elements of a split list are divided among the new subtasks; each new subtask
gets a whole union list. A broadcast state is a map that is equal in every subtask: each subtask writes its own
copy, and each new subtask reads the copy of one old one. A name keeps its mode for the life of the backend.

Rules (DefaultOperatorStateBackend):

* the synchronous part copies all state by encoding it, so the snapshot does not see later changes;
* a registered but empty list or map gives a real handle; without any registered state there is no handle;
* the file has a header, then the lists with one frame per element, then the broadcast states with one frame each;
  the offset of a frame stands for it in a handle.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from state_backends.base import (
    Shape,
    StateArgumentError,
    StateSchemaError,
    check_shape,
    list_of,
    of_type,
    one_of,
    row,
    text,
    whole,
)
from state_backends.codec import FrameReader, StateCodec, default_codec, frame, frame_parts, preamble
from state_backends.snapshots import (
    CheckpointStream,
    OperatorStateHandle,
    OperatorStateMode,
    SnapshotOptions,
    SnapshotResources,
    SnapshotResult,
    SnapshotTask,
    StateOffsets,
    StateReader,
    StreamFactory,
    describe_stream,
)

MAGIC = b"WEIROPER"
FORMAT_VERSION = 1

_HEADER, _ELEMENT, _END = 1, 2, 3
_SPLIT, _UNION = OperatorStateMode.SPLIT_DISTRIBUTE, OperatorStateMode.UNION
_BROADCAST = OperatorStateMode.BROADCAST

_STATES = list_of(row(text, one_of(*(mode.value for mode in OperatorStateMode)), whole))
_ENTRIES = of_type("a map", dict)


class OperatorListState:
    """One list of one subtask, under a name that is unique within the operator."""

    __slots__ = ("_elements", "mode", "name")

    def __init__(self, name: str, mode: OperatorStateMode) -> None:
        self.name = name
        self.mode = mode
        self._elements: list[Any] = []

    def get(self) -> list[Any]:
        """A copy of the list."""
        return list(self._elements)

    def add(self, element: Any) -> None:
        """Append one element.

        :raises StateArgumentError: when it is ``None``
        """
        self.add_all([element])

    def add_all(self, elements: Iterable[Any]) -> None:
        """Append elements.

        :raises StateArgumentError: when one is ``None``, before any change
        """
        self._elements += self._checked(elements)

    def update(self, elements: Iterable[Any]) -> None:
        """Replace the list.

        :raises StateArgumentError: when an element is ``None``, before any change
        """
        self._elements = self._checked(elements)

    def clear(self) -> None:
        self._elements = []

    def _checked(self, elements: Iterable[Any]) -> list[Any]:
        checked = list(elements)
        if any(element is None for element in checked):
            raise StateArgumentError(
                f"operator state {self.name!r} was given an element that is None: store a value that stands for it."
            )
        return checked


class OperatorBroadcastState:
    """A map that is equal in all subtasks: all see the same broadcast elements in the same order, and only these change
    it (HeapBroadcastState).

    Iteration is in the order of the encoded map keys: it depends on the content, not on its history.

    :ivar name: unique within the operator
    """

    __slots__ = ("_codec", "_entries", "name")

    mode = _BROADCAST

    def __init__(self, name: str, codec: StateCodec) -> None:
        self.name = name
        self._codec = codec
        self._entries: dict[Any, Any] = {}

    def get(self, map_key: Any) -> Any:
        """The value under a map key, or ``None``."""
        return self._entries.get(map_key)

    def contains(self, map_key: Any) -> bool:
        return map_key in self._entries

    def put(self, map_key: Any, value: Any) -> None:
        self._entries[map_key] = value

    def put_all(self, entries: Mapping[Any, Any]) -> None:
        self._entries.update(entries)

    def remove(self, map_key: Any) -> None:
        """Remove an entry if it is there."""
        self._entries.pop(map_key, None)

    def clear(self) -> None:
        self._entries = {}

    def entries(self) -> list[tuple[Any, Any]]:
        """All entries, in the order of their encoded keys."""
        return list(self.sorted_entries().items())

    def keys(self) -> list[Any]:
        """All map keys, in the order of their encoding."""
        return list(self.sorted_entries())

    def values(self) -> list[Any]:
        """All values, in the order of their encoded keys."""
        return list(self.sorted_entries().values())

    def is_empty(self) -> bool:
        return not self._entries

    def sorted_entries(self) -> dict[Any, Any]:
        """The map in canonical order; what a snapshot writes."""
        return self._codec.sorted_map(self._entries)


OperatorState = OperatorListState | OperatorBroadcastState


class OperatorStateBackend:
    """Operator state of one subtask."""

    def __init__(self, *, codec: StateCodec | None = None) -> None:
        self._codec = default_codec() if codec is None else codec
        self._states: dict[str, OperatorState] = {}
        self._declared: set[str] = set()

    def list_state(self, name: str, shape: Shape | None = None) -> OperatorListState:
        """The split list of that name.

        :param shape: of each element; what was restored is checked before anything of it is used
        :raises CorruptStateError: when an element was restored that does not have the shape
        :raises StateSchemaError: when the name belongs to a state of another mode
        """
        return self._declare(name, _SPLIT, shape)

    def union_list_state(self, name: str, shape: Shape | None = None) -> OperatorListState:
        """The union list of that name, see :meth:`list_state`."""
        return self._declare(name, _UNION, shape)

    def broadcast_state(self, name: str) -> OperatorBroadcastState:
        """The broadcast state of that name, see :meth:`list_state`."""
        self._declared.add(name)
        state: OperatorBroadcastState = self._state(name, _BROADCAST)
        return state

    def undeclared(self) -> list[str]:
        """The names of non-empty restored states that the operator has not declared, sorted."""
        return sorted(
            name
            for name, state in self._states.items()
            if name not in self._declared
            and (state.get() if isinstance(state, OperatorListState) else not state.is_empty())
        )

    def forget_undeclared(self) -> None:
        """Drop every restored state that the operator has not declared."""
        self._states = {name: state for name, state in self._states.items() if name in self._declared}

    @property
    def has_union_state(self) -> bool:
        """Whether a union list was declared or restored."""
        return any(state.mode is _UNION for state in self._states.values())

    def state_names(self) -> list[str]:
        """The names of all lists that were declared or restored, sorted (``getRegisteredStateNames``)."""
        return sorted(name for name, state in self._states.items() if isinstance(state, OperatorListState))

    def split_lists(self) -> dict[str, list[Any]]:
        """What is in the lists that are divided among subtasks, by name."""
        states = ((name, self._states[name]) for name in self.state_names())
        return {
            name: state.get()
            for name, state in states
            if isinstance(state, OperatorListState) and state.mode is _SPLIT
        }

    def broadcast_state_names(self) -> list[str]:
        """The names of all broadcast states that were declared or restored, sorted."""
        return sorted(name for name, state in self._states.items() if isinstance(state, OperatorBroadcastState))

    def snapshot_strategy(self, options: SnapshotOptions) -> OperatorStateBackend:
        """The backend itself: there is one way for all types of snapshot."""
        return self

    def sync_prepare_resources(self, checkpoint_id: int) -> OperatorSnapshotResources:
        """Copy the present state, by encoding it.

        :raises StateSerializationError: naming the element that cannot be written
        """
        lists: list[tuple[OperatorStateMode, str, list[bytes]]] = []
        maps: list[tuple[OperatorStateMode, str, list[bytes]]] = []
        for name, state in sorted(self._states.items()):
            part = lists if isinstance(state, OperatorListState) else maps
            part.append((state.mode, name, self._encode_all(state)))
        return OperatorSnapshotResources(lists + maps, self._codec)

    def async_snapshot(
        self, resources: SnapshotResources, stream_factory: StreamFactory, options: SnapshotOptions
    ) -> OperatorSnapshotTask:
        """A task that writes what was copied. It owns the resources from here on."""
        assert isinstance(resources, OperatorSnapshotResources)
        return OperatorSnapshotTask(resources, stream_factory)

    def restore(self, handles: Iterable[OperatorStateHandle], reader: StateReader) -> None:
        """Append the elements that the handles refer to, in their order, to the lists of their names, and put the
        entries of broadcast states into the maps of theirs.

        :raises CorruptStateError: when a file is damaged
        :raises MissingStateError: when a file is not there
        :raises StateSchemaError: when a name is declared in another mode than it was written in
        """
        for handle in handles:
            path = describe_stream(handle.stream)
            with reader.open(handle.stream) as file:
                frames = FrameReader(file, path, MAGIC, FORMAT_VERSION)
                encoded = _read_elements(frames, self._codec, path)
            for name, where in handle.states.items():
                try:
                    elements = [self._codec.decode(encoded[name, where.mode, at], path) for at in where.offsets]
                except KeyError:
                    raise frames.corrupt(f"it lacks elements of {where.mode.value} state {name!r}") from None
                if where.mode is _BROADCAST:
                    check_shape(elements, list_of(_ENTRIES), path, f"state {name!r}")
                self._restore_elements(name, where.mode, elements)

    def fingerprint(self) -> bytes:
        """A digest of the content."""
        digest = hashlib.blake2b(digest_size=16)
        for name, state in sorted(self._states.items()):
            content = state.get() if isinstance(state, OperatorListState) else state.sorted_entries()
            digest.update(self._codec.encode([name, state.mode.value, content]))
        return digest.digest()

    def _restore_elements(self, name: str, mode: OperatorStateMode, elements: list[Any]) -> None:
        state = self._state(name, mode)
        if mode is _BROADCAST:
            for entries in elements:
                state.put_all(entries)
        else:
            state.add_all(elements)

    def _declare(self, name: str, mode: OperatorStateMode, shape: Shape | None) -> OperatorListState:
        self._declared.add(name)
        state: OperatorListState = self._state(name, mode)
        if shape is not None:
            check_shape(state.get(), list_of(shape), f"operator state {name!r}", "element")
        return state

    def _state(self, name: str, mode: OperatorStateMode) -> Any:
        """The state of that name: its class follows from the mode."""
        state = self._states.get(name)
        if state is None:
            is_broadcast = mode is _BROADCAST
            state = OperatorBroadcastState(name, self._codec) if is_broadcast else OperatorListState(name, mode)
            self._states[name] = state
        if state.mode is not mode:
            raise StateSchemaError(
                f"operator state {name!r} is {state.mode.value} state and cannot be {mode.value} state too: how "
                "it is redistributed is fixed with its name. Give the new state another name."
            )
        return state

    def _encode_all(self, state: OperatorState) -> list[bytes]:
        what = f"operator state {state.name!r}"
        if isinstance(state, OperatorBroadcastState):
            return [self._codec.encode(state.sorted_entries(), what)]
        elements = state.get()
        encoded: list[bytes] = []
        try:
            encoded.extend(map(self._codec.pack, elements))
        except Exception as problem:
            index = len(encoded)
            raise self._codec.refusal(elements[index], f"{what}[{index}]", problem) from problem
        return encoded


def _read_elements(
    frames: FrameReader, codec: StateCodec, path: str
) -> dict[tuple[str, OperatorStateMode, int], bytes]:
    """All elements of a file by (name, mode, offset). Reading to the end checks every byte."""
    elements = {}
    header = codec.decode(frames.read(bytes([_HEADER])).payload, path)
    check_shape(header, _STATES, path, "states")
    for name, mode, count in header:
        for _ in range(count):
            offset = frames.tell()
            elements[name, OperatorStateMode(mode), offset] = frames.read(bytes([_ELEMENT])).payload
    frames.read(bytes([_END]))
    frames.expect_end()
    return elements


@dataclass(eq=False)
class OperatorSnapshotResources(SnapshotResources):
    """The encoded elements of all states, by name.

    :ivar states: (mode, name, encoded elements), the lists and then the broadcast states, each sorted by name
    """

    states: list[tuple[OperatorStateMode, str, list[bytes]]]
    codec: StateCodec

    def _release(self) -> None:
        self.states = []


@lru_cache(256)  # The files of a subtask begin and end alike, checkpoint after checkpoint.
def _beginning(states: tuple[tuple[str, OperatorStateMode, int], ...]) -> bytes:
    """The first bytes of a file: of each state its name, its mode, and the number of its elements."""
    header = default_codec().encode([[name, mode.value, count] for name, mode, count in states])
    return preamble(MAGIC, FORMAT_VERSION) + frame(_HEADER, 0, header)


@lru_cache(256)
def _end(states: int) -> bytes:
    return frame(_END, 0, default_codec().encode(states))


class OperatorSnapshotTask(SnapshotTask[OperatorStateHandle]):
    """Writes the copied elements, one state per step."""

    def __init__(self, resources: OperatorSnapshotResources, stream_factory: StreamFactory) -> None:
        super().__init__(resources)
        self._copied = resources
        self._stream_factory = stream_factory
        self._stream: CheckpointStream | None = None
        self._written: dict[str, StateOffsets] = {}

    def _advance(self) -> SnapshotResult[OperatorStateHandle] | None:
        states = self._copied.states
        if not states:
            return SnapshotResult(None)
        if self._stream is None:
            self._stream = self._stream_factory.create_stream()
            self._stream.write(_beginning(tuple((name, mode, len(elements)) for mode, name, elements in states)))
        index = len(self._written)
        mode, name, elements = states[index]
        offsets = []
        for element in elements:
            offsets.append(self._stream.tell())
            for part in frame_parts(_ELEMENT, 0, element):
                self._stream.write(part)
        self._written[name] = StateOffsets(mode, tuple(offsets))
        if index + 1 < len(states):
            return None
        self._stream.write(_end(len(states)))
        stream_handle = self._stream.close_and_get_handle()
        assert stream_handle is not None
        return SnapshotResult(OperatorStateHandle(self._written, stream_handle))

    def _discard(self) -> None:
        if self._stream is not None:
            self._stream.close()
