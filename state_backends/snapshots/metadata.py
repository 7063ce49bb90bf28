"""The parts of a completed checkpoint: the content of its ``_metadata`` file.

The plain form uses maps with text keys for everything that may grow (channel state, coordinator state). So a
reader finds the fields that it knows, and an older file simply lacks newer fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from typing import Any, BinaryIO

from state_backends.base import (
    UPPER_BOUND_MAX_PARALLELISM,
    CorruptStateError,
    KeyGroupError,
    anything,
    binary,
    check_shape,
    fields,
    flag,
    list_of,
    map_of,
    optional,
    positive,
    row,
    text,
    value_class,
    whole,
)
from state_backends.codec import default_codec, seal, unseal
from state_backends.snapshots.handles import (
    CHANNEL_STATE,
    OPERATOR_STATE,
    ChannelStateHandle,
    OperatorStateHandle,
    StreamStateHandle,
)
from state_backends.snapshots.keyed_handles import KEYED_STATE, KeyedStateHandle, keyed_handle_from_state

MAGIC = b"WEIRMETA"
FORMAT_VERSION = 1

SUBTASK = fields(
    {"keyed": optional(KEYED_STATE), "operator": optional(OPERATOR_STATE), "finished": flag},
    {"input_channels": optional(CHANNEL_STATE), "output_channels": optional(CHANNEL_STATE)},
)
"""The shape of the plain form of a :class:`SubtaskSnapshot`."""

_OPERATOR = fields(
    {
        "uid": text,
        "name": text,
        "parallelism": positive,
        "max_parallelism": positive,
        "subtasks": list_of(row(whole, SUBTASK)),
        "coordinator_state": optional(binary),
    }
)
_METADATA = fields(
    {
        "checkpoint_id": whole,
        "timestamp": whole,
        "incarnation": whole,
        "properties": map_of(text, anything),
        "operators": list_of(_OPERATOR),
    }
)


@value_class
class SubtaskSnapshot:
    """The state of one subtask of one operator.

    :ivar keyed: its keyed state, if any
    :ivar operator: its operator state, if any
    :ivar finished: whether the subtask had finished before the checkpoint
    :ivar input_channels: records in flight on the inputs of the task, if any; only at the head of its chain
    :ivar output_channels: records in flight on its outputs, if any; only at the head of its chain
    """

    keyed: KeyedStateHandle | None = None
    operator: OperatorStateHandle | None = None
    finished: bool = False
    input_channels: ChannelStateHandle | None = None
    output_channels: ChannelStateHandle | None = None

    def streams(self) -> Iterator[StreamStateHandle]:
        if self.keyed is not None:
            yield from self.keyed.streams()
        if self.operator is not None:
            yield self.operator.stream
        if self.input_channels is not None:
            yield self.input_channels.stream
        if self.output_channels is not None:
            yield self.output_channels.stream

    def with_streams(self, moved: Callable[[StreamStateHandle], StreamStateHandle]) -> SubtaskSnapshot:
        """The same state with every stream replaced by ``moved``."""
        keyed, operator = self.keyed, self.operator
        inputs, outputs = self.input_channels, self.output_channels
        return SubtaskSnapshot(
            keyed and keyed.with_streams(moved),
            operator and OperatorStateHandle(operator.states, moved(operator.stream)),
            self.finished,
            inputs and replace(inputs, stream=moved(inputs.stream)),
            outputs and replace(outputs, stream=moved(outputs.stream)),
        )

    def to_state(self) -> dict[str, Any]:
        state = {
            "keyed": None if self.keyed is None else self.keyed.to_state(),
            "operator": None if self.operator is None else self.operator.to_state(),
            "finished": self.finished,
        }
        if self.input_channels is not None:
            state["input_channels"] = self.input_channels.to_state()
        if self.output_channels is not None:
            state["output_channels"] = self.output_channels.to_state()
        return state

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> SubtaskSnapshot:
        keyed, operator = state["keyed"], state["operator"]
        inputs, outputs = state.get("input_channels"), state.get("output_channels")
        return cls(
            None if keyed is None else keyed_handle_from_state(keyed),
            None if operator is None else OperatorStateHandle.from_state(operator),
            state["finished"],
            None if inputs is None else ChannelStateHandle.from_state(inputs),
            None if outputs is None else ChannelStateHandle.from_state(outputs),
        )


@value_class
class OperatorSnapshot:
    """The state of one operator.

    :ivar uid: identifies the operator in another job graph
    :ivar name: the name shown to users
    :ivar parallelism: its number of subtasks
    :ivar max_parallelism: its number of key groups
    :ivar subtasks: the state of each subtask, by its index; stateless subtasks may be absent
    :ivar coordinator_state: encoded state of the operator's coordinator, if it has one
    """

    uid: str
    name: str
    parallelism: int
    max_parallelism: int
    subtasks: Mapping[int, SubtaskSnapshot] = field(default_factory=dict)
    coordinator_state: bytes | None = None

    def to_state(self) -> dict[str, Any]:
        return {
            "uid": self.uid,
            "name": self.name,
            "parallelism": self.parallelism,
            "max_parallelism": self.max_parallelism,
            "subtasks": [[index, one.to_state()] for index, one in sorted(self.subtasks.items())],
            "coordinator_state": self.coordinator_state,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> OperatorSnapshot:
        return cls(
            state["uid"],
            state["name"],
            state["parallelism"],
            state["max_parallelism"],
            {index: SubtaskSnapshot.from_state(one) for index, one in state["subtasks"]},
            state["coordinator_state"],
        )


@value_class
class CheckpointMetadata:
    """A completed checkpoint.

    :ivar checkpoint_id: its number
    :ivar timestamp: when it was triggered, in virtual nanoseconds
    :ivar incarnation: the start of the storage directory that made it
    :ivar properties: plain values about the job, such as the fingerprint of its graph
    :ivar operators: the state of each operator
    """

    checkpoint_id: int
    timestamp: int
    incarnation: int
    properties: Mapping[str, Any] = field(default_factory=dict)
    operators: tuple[OperatorSnapshot, ...] = ()

    def streams(self) -> Iterator[StreamStateHandle]:
        """Everything that the checkpoint's handles refer to, in order."""
        for operator in self.operators:
            for _, subtask in sorted(operator.subtasks.items()):
                yield from subtask.streams()

    def channel_state(self) -> Iterator[ChannelStateHandle]:
        """The handles of all records in flight, in order."""
        for operator in self.operators:
            for _, subtask in sorted(operator.subtasks.items()):
                yield from filter(None, (subtask.input_channels, subtask.output_channels))

    @property
    def size_bytes(self) -> int:
        """The bytes of all state, inlined and in files."""
        return sum(stream.size_bytes for stream in self.streams())

    def to_bytes(self) -> bytes:
        """The content of the ``_metadata`` file.

        :raises StateSerializationError: when a property cannot be written
        """
        state = {
            "checkpoint_id": self.checkpoint_id,
            "timestamp": self.timestamp,
            "incarnation": self.incarnation,
            "properties": dict(sorted(self.properties.items())),
            "operators": [operator.to_state() for operator in self.operators],
        }
        return seal(MAGIC, FORMAT_VERSION, default_codec().encode(state, "checkpoint metadata"))

    @classmethod
    def from_file(cls, file: BinaryIO, path: str) -> CheckpointMetadata:
        """Read a ``_metadata`` file.

        :raises CorruptStateError: when any byte is not as written, or its content makes no sense
        :raises StateSchemaError: when a newer program wrote it
        """
        state = default_codec().decode(unseal(file, path, MAGIC, FORMAT_VERSION), path)
        check_shape(state, _METADATA, path, "metadata")
        try:
            operators = tuple(map(OperatorSnapshot.from_state, state["operators"]))
        except KeyGroupError as problem:
            raise CorruptStateError(path, f"malformed: {problem}") from problem
        listed = zip(operators, (len(one["subtasks"]) for one in state["operators"]), strict=True)
        problems = (_problem(operator, subtasks) for operator, subtasks in listed)
        found = next(filter(None, problems), None)
        if found is None and len({operator.uid for operator in operators}) < len(operators):
            found = "two operators have the same uid"
        if found is not None:
            raise CorruptStateError(path, f"malformed: {found}")
        return cls(state["checkpoint_id"], state["timestamp"], state["incarnation"], state["properties"], operators)


def _problem(operator: OperatorSnapshot, listed: int) -> str | None:
    """The contradiction in an operator with this many listed subtasks, if there is one."""
    who = f"operator {operator.uid!r} has"
    parallelism, most = operator.parallelism, operator.max_parallelism
    if not parallelism <= most <= UPPER_BOUND_MAX_PARALLELISM:
        return f"{who} parallelism {parallelism} and max parallelism {most}, which do not go together"
    if len(operator.subtasks) < listed:
        return f"{who} a subtask that is listed twice"
    for index, subtask in operator.subtasks.items():
        if index >= parallelism:
            return f"{who} a subtask {index}, but parallelism {parallelism}"
        if subtask.keyed is not None and subtask.keyed.key_group_range.last >= most:
            return f"{who} key groups {subtask.keyed.key_group_range} in subtask {index}, but max parallelism {most}"
        inputs, outputs = subtask.input_channels, subtask.output_channels
        ends = [] if inputs is None else [piece.channel.receiver for piece in inputs.pieces]
        ends += [] if outputs is None else [piece.channel.sender for piece in outputs.pieces]
        if any(end != index for end in ends):
            return f"{who} records in flight of other subtasks in subtask {index}"
    return None
