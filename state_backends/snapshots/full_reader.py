"""Reads the full snapshot format, which :mod:`state_backends.snapshots.full_format` describes and writes."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO

from state_backends.base import (
    KeyGroupRange,
    KeyTypeError,
    StateKind,
    StateSchemaError,
    check_keys,
    check_shape,
    list_of,
    optional,
    row,
    values,
    whole,
)
from state_backends.codec import Frame, FrameReader, StateCodec
from state_backends.snapshots.contract import COMPRESSIONS
from state_backends.snapshots.full_format import END, FORMAT_VERSION, GROUP, HEADER, MAGIC, DecodedBlock, SnapshotHeader
from state_backends.snapshots.handles import describe_stream
from state_backends.snapshots.keyed_handles import FullKeyedStateHandle

_KNOWN_KINDS = frozenset(kind.value for kind in StateKind)
_BLOCKS = list_of(row(whole, values, optional(values), values))


class FullSnapshotReader:
    """Reads one full snapshot.

    :ivar path: its name in errors
    :ivar header: the snapshot's header
    :ivar codec: reads keys and values; after the header was read, a codec that migrates values may replace it
    :raises CorruptStateError: from each method, when the bytes read differ from the bytes written
    :raises StateSchemaError: from each method, when the file, or a value in it, needs a newer program
    """

    def __init__(self, file: BinaryIO, handle: FullKeyedStateHandle, codec: StateCodec) -> None:
        self._handle = handle
        self.codec = codec
        self.path = describe_stream(handle.stream)
        self._frames = FrameReader(file, self.path, MAGIC, FORMAT_VERSION)
        header = codec.decode(self._frames.read(bytes([HEADER])).payload, self.path)
        self.header = SnapshotHeader.from_state(header, self.path)
        self._check_header()

    def blocks(self, key_groups: KeyGroupRange) -> Iterator[DecodedBlock]:
        """The entries of some key groups, in file order.

        When the file has only these groups, all of it is read and checked; otherwise only the given
        groups are read.
        """
        whole = self._handle.key_group_range == self.header.key_group_range
        if whole and key_groups.intersection(self.header.key_group_range) == self.header.key_group_range:
            return self._decode(self._all_groups())
        return self._decode(self._some_groups(key_groups))

    def _check_header(self) -> None:
        for state in self.header.states:
            check_kind(state.name, state.kind, self.path)
        if self.header.compression not in COMPRESSIONS:
            raise StateSchemaError(
                f"{self.path}: compression {self.header.compression!r} is not known to this program."
            )

    def _all_groups(self) -> Iterator[Frame]:
        found = []
        while (one := self._frames.read(bytes([GROUP, END]))).kind == GROUP:
            found.append(one.tag)
            yield one
        self._frames.expect_end()
        expected = [group for group, _ in self._handle.offsets]
        if found != expected:
            raise self._frames.corrupt(f"it holds key groups {found}, but its handle says {expected}")

    def _some_groups(self, key_groups: KeyGroupRange) -> Iterator[Frame]:
        for group, offset in self._handle.offsets:
            if group in key_groups:
                self._frames.seek(offset)
                one = self._frames.read(bytes([GROUP]))
                if one.tag != group:
                    raise self._frames.corrupt(f"the frame at {offset} is of key group {one.tag}, not {group}")
                yield one

    def _decode(self, groups: Iterator[Frame]) -> Iterator[DecodedBlock]:
        for one in groups:
            payload = one.payload
            if self.header.compression == "zlib":
                payload = self._decompress(one)
            blocks = self.codec.decode(payload, self.path)
            check_shape(blocks, _BLOCKS, self.path, f"key group {one.tag}")
            for block in blocks:
                yield self._checked(one.tag, *block)

    def _checked(
        self, key_group: int, index: int, keys: list[Any], namespaces: list[Any] | None, stored: list[Any]
    ) -> DecodedBlock:
        states = self.header.states
        if index >= len(states) or states[index].namespaced is (namespaces is None):
            raise self._frames.corrupt(f"malformed: key group {key_group} has entries of a state that it does not name")
        if not len(keys) == len(stored) == len(keys if namespaces is None else namespaces):
            raise self._frames.corrupt(f"malformed: key group {key_group} has more keys than values, or fewer")
        try:
            check_keys(keys, self.header.key_type)
        except KeyTypeError as problem:
            raise self._frames.corrupt(f"malformed: {problem}") from problem
        return DecodedBlock(key_group, states[index], keys, namespaces, stored)

    def _decompress(self, one: Frame) -> bytes:
        try:
            return zlib.decompress(one.payload)
        except zlib.error as problem:
            raise self._frames.corrupt(f"key group {one.tag} cannot be decompressed ({problem})") from problem


def check_kind(state: str, kind: str, path: str) -> None:
    """Refuse a state of a kind that only newer programs know.

    :raises StateSchemaError: names state and kind
    """
    if kind not in _KNOWN_KINDS:
        raise StateSchemaError(
            f"{path}: state {state!r} is of kind {kind!r}, which this program does not know. Use the newer program "
            "that wrote it."
        )
