"""What a state backend is as a setting of a job, and what it is given when one subtask needs one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from state_backends.api.keyed_backend import KeyedStateBackend
from state_backends.base import Executor, InlineExecutor, KeyGroupRange, KeyType
from state_backends.codec import StateCodec, default_codec
from state_backends.files import FileSystem
from state_backends.snapshots import StreamFactory


def _no_time() -> int:
    return 0


@dataclass(frozen=True, slots=True)
class BackendEnvironment:
    """What one keyed backend of one subtask is given.

    :ivar key_type: the declared type of all keys, ``None`` = that of the snapshot restored, else of the first key
    :ivar max_parallelism: the number of key groups of the operator
    :ivar key_group_range: those that this subtask owns
    :ivar file_system: where local files go
    :ivar working_dir: a directory for them, the backend's alone; it does not exist yet
    :ivar unique: never given to another backend, crashes and restarts included; goes into names of files
    :ivar executor: does background work
    :ivar now_ms: the processing time, for state that expires
    :ivar codec: encodes keys and values
    :ivar shared_streams: streams into the shared scope, for what is uploaded between checkpoints; ``None`` = nothing is
    """

    key_type: KeyType | None
    max_parallelism: int
    key_group_range: KeyGroupRange
    file_system: FileSystem
    working_dir: str
    unique: str
    executor: Executor = field(default_factory=InlineExecutor)
    now_ms: Callable[[], int] = _no_time
    codec: StateCodec = field(default_factory=default_codec)
    shared_streams: StreamFactory | None = None


class StateBackend(Protocol):
    """A kind of keyed state, with its settings (Flink: ``StateBackend``). Holds no state and no file itself."""

    @property
    def name(self) -> str:
        """As in :mod:`state_backends.named`."""

    @property
    def incremental(self) -> bool:
        """Whether checkpoints use files of earlier ones."""

    def create_keyed_backend(self, environment: BackendEnvironment) -> KeyedStateBackend:
        """An empty keyed backend for one subtask."""
