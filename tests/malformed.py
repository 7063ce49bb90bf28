"""Data that is well framed and malformed inside: every checksum fits, but one value in it does not belong there."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import msgpack

from state_backends.codec import PREAMBLE_BYTES, frame
from state_backends.codec.encoding import FRAME_OVERHEAD_BYTES

_HEAD = struct.Struct(">BHI")

OTHERS: tuple[Any, ...] = (
    None, True, -1, 1 << 40, 1.5, "?", b"?", [], [1], {}, {"?": 1}, msgpack.ExtType(99, b"?"),
)  # fmt: skip
"""The replacements of a node: values of each type, and one of an unregistered type."""


def variants(plain: Any) -> Iterator[Any]:
    """Every value with one node replaced, left out, or there twice."""
    for other in OTHERS:
        if type(other) is not type(plain) or other != plain:
            yield other
    if type(plain) in (list, tuple):
        made = type(plain)
        for index, one in enumerate(plain):
            before, behind = plain[:index], plain[index + 1 :]
            yield made((*before, *behind))
            yield made((*before, one, one, *behind))
            for other in variants(one):
                yield made((*before, other, *behind))
    elif type(plain) is dict:
        for name, one in plain.items():
            yield {key: value for key, value in plain.items() if key != name}
            yield {(7 if key == name else key): value for key, value in plain.items()}
            for other in variants(one):
                yield {**plain, name: other}


def packed_variants(payload: bytes) -> Iterator[bytes]:
    plain = msgpack.unpackb(payload, strict_map_key=False)
    assert packed(plain) == payload
    yield from map(packed, variants(plain))
    yield b"\xc1"
    yield payload + b"\0"
    yield payload[:-1]


def packed(plain: Any) -> bytes:
    data: bytes = msgpack.packb(plain, use_bin_type=True)
    return data


def framed_variants(data: bytes) -> Iterator[bytes]:
    """The same of each frame of a file whose frames are encoded values, each with the checksum that fits."""
    head, frames = data[:PREAMBLE_BYTES], frames_of(data)
    for index, (kind, tag, payload) in enumerate(frames):
        rest = [frame(*one) for one in frames]
        for other in packed_variants(payload):
            yield head + b"".join([*rest[:index], frame(kind, tag, other), *rest[index + 1 :]])
        yield head + b"".join([*rest[:index], *rest[index + 1 :]])
        yield head + b"".join([*rest[: index + 1], *rest[index:]])


def frames_of(data: bytes) -> list[tuple[int, int, bytes]]:
    """Kind, tag and payload of each frame of a file."""
    frames, at = [], PREAMBLE_BYTES
    while at < len(data):
        kind, tag, length = _HEAD.unpack_from(data, at)
        at += FRAME_OVERHEAD_BYTES
        frames.append((kind, tag, data[at : at + length]))
        at += length
    return frames
