"""Values to bytes and back, exactly: ``encoding``, with the envelope of every file; the ``registry`` of classes that
state may contain; and the ``forms`` of records, which decide whether old state can be read after the fields of a class
have changed. ``plain_values`` shows values as JSON to people.
"""

from __future__ import annotations

from state_backends.codec.encoding import (
    LARGE_BYTES as LARGE_BYTES,
    PREAMBLE_BYTES as PREAMBLE_BYTES,
    Frame as Frame,
    FrameReader as FrameReader,
    StateCodec as StateCodec,
    check_version as check_version,
    default_codec as default_codec,
    frame as frame,
    frame_parts as frame_parts,
    in_encoded_order as in_encoded_order,
    preamble as preamble,
    seal as seal,
    unseal as unseal,
)
from state_backends.codec.forms import Compatibility as Compatibility
from state_backends.codec.plain_values import inspecting_codec as inspecting_codec, plain as plain, shown as shown
from state_backends.codec.record_schema import WRITTEN_SCHEMA as WRITTEN_SCHEMA, RecordSchema as RecordSchema
from state_backends.codec.registry import (
    RegisteredType as RegisteredType,
    TypeRegistry as TypeRegistry,
    full_name as full_name,
    newer_version as newer_version,
    read_by as read_by,
    register_record_type as register_record_type,
    register_type as register_type,
)
