"""Values to bytes and back, exactly: ``encoding`` with the ``registry`` of classes that may stand in state,
``framing``, the envelope of every file, and the ``forms`` of records, by which old state follows a class whose fields
have changed. ``plain_values`` shows values as JSON to people.
"""

from __future__ import annotations

from state_backends.codec.encoding import StateCodec, default_codec
from state_backends.codec.forms import Compatibility
from state_backends.codec.framing import PREAMBLE_BYTES, Frame, FrameReader, frame, preamble, seal, unseal
from state_backends.codec.plain_values import inspecting_codec, plain, shown
from state_backends.codec.record_schema import WRITTEN_SCHEMA, RecordSchema
from state_backends.codec.registry import (
    RegisteredType,
    TypeRegistry,
    full_name,
    newer_version,
    read_by,
    register_record_type,
    register_type,
)

__all__ = [
    "PREAMBLE_BYTES",
    "WRITTEN_SCHEMA",
    "Compatibility",
    "Frame",
    "FrameReader",
    "RecordSchema",
    "RegisteredType",
    "StateCodec",
    "TypeRegistry",
    "default_codec",
    "frame",
    "full_name",
    "inspecting_codec",
    "newer_version",
    "plain",
    "preamble",
    "read_by",
    "register_record_type",
    "register_type",
    "seal",
    "shown",
    "unseal",
]
