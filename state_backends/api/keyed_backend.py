"""The interface of every keyed state backend; the settings of a job make one backend for each subtask.

The engine and the operators use this protocol. A backend provides the tables of entries; the handles of states are the
same for all backends, see :mod:`state_backends.api.states`. The semantics of a snapshot are in
:mod:`state_backends.snapshots.contract`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from typing import Any, Protocol

from state_backends.api.key_scope import KeyScope
from state_backends.api.states import AggregatingState, ListState, MapState, ReducingState, ValueState
from state_backends.api.timers import TimerQueue, TimerService
from state_backends.base import (
    AggregatingStateDescriptor,
    Executor,
    InlineExecutor,
    KeyGroupRange,
    KeyType,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateKind,
    StateSchemaError,
    StateTtlConfig,
    ValueStateDescriptor,
    as_written,
    value_class,
)
from state_backends.codec import StateCodec, default_codec
from state_backends.files import FileSystem
from state_backends.snapshots import (
    DecodedBlock,
    EncodedBlock,
    FullKeyedStateHandle,
    FullSnapshotReader,
    KeyedSnapshotStrategy,
    KeyedStateHandle,
    SnapshotOptions,
    StateReader,
    StateSchemas,
    StreamFactory,
    checked_blocks,
    names_without_timers,
)


class SnapshotHistory(Protocol):
    """The earlier snapshots, as incremental snapshots know them. The task notifies it of their outcome."""

    def complete(self, checkpoint_id: int) -> object:
        """The checkpoint is durable and complete: later ones may build on it."""

    def abort(self, checkpoint_id: int) -> object:
        """The checkpoint will never complete. The task of its snapshot is cancelled by its owner."""

    def subsumed(self, checkpoint_id: int) -> object:
        """No restore will use the checkpoint again."""


class KeyedStateBackend(Protocol):
    """Keyed state of one subtask: states by name, timers, snapshots, restore.

    :ivar scope: its keys
    :ivar history: is notified of checkpoints; ``None``, and the backend is not notified, while no snapshot builds on an
        earlier one
    """

    scope: KeyScope
    history: SnapshotHistory | None = None
    _timer_services: dict[str, TimerService]

    @property
    def key_type(self) -> KeyType | None:
        """The type of all keys; ``None`` until the first one when it was not declared."""
        return self.scope.key_type

    @property
    def max_parallelism(self) -> int:
        return self.scope.max_parallelism

    @property
    def key_group_range(self) -> KeyGroupRange:
        """The key groups that this subtask owns."""
        return self.scope.key_group_range

    @property
    def current_key(self) -> Any:
        """The key of single accesses.

        :raises StateArgumentError: when none was set
        """
        return self.scope.require()

    def set_current_key(self, key: Any) -> None:
        """Scope single access to a key.

        :raises KeyTypeError: when it is not of the declared type
        """
        scope = self.scope
        if type(key) is scope.plain_key_type:  # saves a call for every record
            scope.key = key
        else:
            scope.set(key)

    def clear_current_key(self) -> None:
        """Scope single access to no key: it raises until another key is set."""
        self.scope.key = None

    def table(self, descriptor: StateDescriptor) -> Any:
        """The table of a state, without what has expired: :class:`MapEntries` of a map, :class:`ListEntries` of a list,
        else :class:`Entries`.

        :raises StateSchemaError: when the name belongs to a state of another kind
        """

    def stored(self, name: str, kind: StateKind, ttl: StateTtlConfig | None) -> Any:
        """The same table as stored: with time-to-live, it has pairs of last access and content."""

    def value_state(self, descriptor: ValueStateDescriptor) -> ValueState:
        """The value state of that name. Errors as of :meth:`table`."""
        return ValueState(self.table(descriptor), descriptor)

    def list_state(self, descriptor: ListStateDescriptor) -> ListState:
        """The list state of that name."""
        return ListState(self.table(descriptor))

    def map_state(self, descriptor: MapStateDescriptor) -> MapState:
        """The map state of that name."""
        return MapState(self.table(descriptor))

    def reducing_state(self, descriptor: ReducingStateDescriptor) -> ReducingState:
        """The reducing state of that name."""
        return ReducingState(self.table(descriptor), descriptor)

    def aggregating_state(self, descriptor: AggregatingStateDescriptor) -> AggregatingState:
        """The aggregating state of that name."""
        return AggregatingState(self.table(descriptor), descriptor)

    def timer_service(self, name: str) -> TimerService:
        """The timers of that name, the same object at each call."""
        service = self._timer_services.get(name)
        if service is None:
            queues = self._timer_queue(name, "event"), self._timer_queue(name, "processing")
            service = self._timer_services[name] = TimerService(*queues)
        return service

    def _timer_queue(self, name: str, domain: str) -> TimerQueue:
        """The timers of a time domain of that name."""

    def num_entries(self, state_name: str | None = None) -> int:
        """The number of (key, namespace) with content, in one state or in all; timers only when named."""

    def keys(self, state_name: str, namespace: Any = None) -> list[Any]:
        """The keys with content in a state and namespace, ordered by key group and encoded key."""

    def state_names(self) -> list[str]:
        """The names of all states that were declared or restored, sorted; those of timers included."""

    def snapshot_strategy(self, options: SnapshotOptions) -> KeyedSnapshotStrategy:
        """The strategy for snapshots of that type; it does both parts of a snapshot."""

    def restore(self, handles: Iterable[KeyedStateHandle], reader: StateReader) -> None:
        """Read the entries of this backend's key groups from snapshots. The backend must be empty.

        The handles may cover more key groups (a rescale): the others are left out.

        :raises CorruptStateError: when a file is damaged
        :raises MissingStateError: when a file is not there
        :raises StateSchemaError: when key type, max parallelism, the kind of a state or its time-to-live differ, the
            fields of records differ in a way that cannot be followed, or a handle is in a form that this backend cannot
            read
        """

    def dispose(self) -> None:
        """The subtask ends: close and delete local files. A second call does nothing. Snapshots must have ended."""

    def fingerprint(self) -> bytes:
        """A digest of the content: equal for equal state, on every backend and after any history."""

    def content(self) -> Iterator[tuple[int, EncodedBlock]]:
        """All entries in canonical bytes, as (key group, block): by state, then by key group."""

    def entries_of(self, block: EncodedBlock) -> Iterator[tuple[Any, Any, Any]]:
        """Key, namespace (``None`` without one) and value of each entry of a block of :meth:`content`."""


def load_full(
    handle: FullKeyedStateHandle,
    reader: StateReader,
    scope: KeyScope,
    codec: StateCodec,
    schemas: StateSchemas,
    load: Callable[[Iterator[DecodedBlock]], None],
) -> None:
    """Give ``load`` the entries of the own key groups in a full snapshot, see :meth:`KeyedStateBackend.restore`."""
    common = handle.key_group_range.intersection(scope.key_group_range)
    if common is None:
        return
    with reader.open(handle.stream) as file:
        snapshot = FullSnapshotReader(file, handle, codec)
        header = snapshot.header
        scope.check_restored(header.key_type, header.max_parallelism)
        snapshot.codec = schemas.restore(header.schema, names_without_timers(header.states), snapshot.path)
        with as_written(snapshot.path):
            load(checked_blocks(snapshot.blocks(common), snapshot.codec))


def check_same_kind(name: str, known: StateKind, asked: StateKind, *, registered: bool) -> None:
    """Refuse a name that belongs to a state of another kind.

    :param registered: whether the running program has declared the known one
    :raises StateSchemaError: naming both kinds
    """
    if known is not asked:
        raise StateSchemaError(
            f"state {name!r} was {'declared' if registered else 'restored'} as {known.value} state and cannot be "
            f"{asked.value} state too. Give the new state another name."
        )


def _no_time() -> int:
    return 0


@value_class
class BackendEnvironment:
    """The arguments of one keyed backend of one subtask.

    :ivar key_type: the declared type of all keys, ``None`` = the type in the restored snapshot, else of the first key
    :ivar max_parallelism: the number of key groups of the operator
    :ivar key_group_range: the key groups that this subtask owns
    :ivar file_system: the file system for local files
    :ivar working_dir: a directory for them, only for this backend; it does not exist yet
    :ivar unique: part of names of files; never given to another backend, even after a crash or restart
    :ivar executor: does background work
    :ivar now_ms: the processing time, for state that expires
    :ivar codec: encodes keys and values
    :ivar shared_streams: streams into the shared scope, for uploads between checkpoints; ``None`` = no such uploads
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
