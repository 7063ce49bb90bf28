"""State in files. ``contract`` defines a snapshot; ``handles`` and ``keyed_handles`` describe the places of state.
``full_format`` writes all keyed state canonically, and ``full_reader`` reads it. ``checkpoint_streams``, ``metadata``,
``checkpoint_location``, ``storage`` and ``savepoints`` make checkpoints and savepoints of it. ``channel_state`` keeps
records in flight, ``restore_alternatives`` tries one copy after another, ``file_places`` checks the files that metadata
names.
"""

from __future__ import annotations

from state_backends.snapshots.channel_state import (
    ChannelStateResources as ChannelStateResources,
    ChannelStateSnapshotTask as ChannelStateSnapshotTask,
    RecordColumns as RecordColumns,
    read_channel_state as read_channel_state,
)
from state_backends.snapshots.checkpoint_location import (
    DEFAULT_INLINE_THRESHOLD_BYTES as DEFAULT_INLINE_THRESHOLD_BYTES,
    MAX_INLINE_THRESHOLD_BYTES as MAX_INLINE_THRESHOLD_BYTES,
    METADATA_FILE_NAME as METADATA_FILE_NAME,
    CheckpointLocation as CheckpointLocation,
    safe_file_name as safe_file_name,
)
from state_backends.snapshots.checkpoint_streams import (
    FsStateReader as FsStateReader,
    FsStreamFactory as FsStreamFactory,
    ScopeDirectories as ScopeDirectories,
)
from state_backends.snapshots.contract import (
    COMPRESSIONS as COMPRESSIONS,
    CheckpointStream as CheckpointStream,
    KeyedSnapshotStrategy as KeyedSnapshotStrategy,
    SnapshotOptions as SnapshotOptions,
    SnapshotResources as SnapshotResources,
    SnapshotResult as SnapshotResult,
    SnapshotTask as SnapshotTask,
    SnapshotType as SnapshotType,
    StateReader as StateReader,
    StreamFactory as StreamFactory,
    checked_chunks as checked_chunks,
    discard_all as discard_all,
    run_to_completion as run_to_completion,
)
from state_backends.snapshots.file_places import (
    SHARED_DIRECTORIES_FILE_NAME as SHARED_DIRECTORIES_FILE_NAME,
    allow as allow,
    check_places as check_places,
    shared_directories as shared_directories,
    shared_directory_of as shared_directory_of,
)
from state_backends.snapshots.full_format import (
    Contents as Contents,
    DecodedBlock as DecodedBlock,
    EncodedBlock as EncodedBlock,
    FullSnapshotResources as FullSnapshotResources,
    FullSnapshotStrategy as FullSnapshotStrategy,
    FullSnapshotTask as FullSnapshotTask,
    FullSnapshotWriter as FullSnapshotWriter,
    SnapshotHeader as SnapshotHeader,
    StateId as StateId,
    block_entries as block_entries,
    content_digest as content_digest,
)
from state_backends.snapshots.full_reader import FullSnapshotReader as FullSnapshotReader, check_kind as check_kind
from state_backends.snapshots.handles import (
    STREAM as STREAM,
    ByteStreamStateHandle as ByteStreamStateHandle,
    ChannelName as ChannelName,
    ChannelStateHandle as ChannelStateHandle,
    FileStateHandle as FileStateHandle,
    OperatorStateHandle as OperatorStateHandle,
    OperatorStateMode as OperatorStateMode,
    StateOffsets as StateOffsets,
    StateScope as StateScope,
    StreamStateHandle as StreamStateHandle,
    describe_stream as describe_stream,
    stream_handle_from_state as stream_handle_from_state,
)
from state_backends.snapshots.keyed_handles import (
    ChangelogKeyedStateHandle as ChangelogKeyedStateHandle,
    FullKeyedStateHandle as FullKeyedStateHandle,
    IncrementalKeyedStateHandle as IncrementalKeyedStateHandle,
    KeyedStateHandle as KeyedStateHandle,
    LogSegment as LogSegment,
    StoreFile as StoreFile,
    full_handle as full_handle,
    unreadable_form as unreadable_form,
)
from state_backends.snapshots.metadata import (
    SUBTASK as SUBTASK,
    CheckpointMetadata as CheckpointMetadata,
    OperatorSnapshot as OperatorSnapshot,
    SubtaskSnapshot as SubtaskSnapshot,
)
from state_backends.snapshots.restore_alternatives import (
    LocalFirstReader as LocalFirstReader,
    ReportRestore as ReportRestore,
    RestoreCandidate as RestoreCandidate,
    keyed_alternatives as keyed_alternatives,
    remote_only as remote_only,
    restore_backend as restore_backend,
    single_alternatives as single_alternatives,
)
from state_backends.snapshots.savepoints import (
    SAVEPOINT_PREFIX as SAVEPOINT_PREFIX,
    StreamCopier as StreamCopier,
    checkpoint_id_of as checkpoint_id_of,
    copy_as_savepoint as copy_as_savepoint,
    locate_snapshot as locate_snapshot,
    new_savepoint as new_savepoint,
)
from state_backends.snapshots.state_schemas import (
    MigratingCodec as MigratingCodec,
    StateSchemas as StateSchemas,
    check_key as check_key,
    checked_blocks as checked_blocks,
    merge_written as merge_written,
    names_without_timers as names_without_timers,
)
from state_backends.snapshots.storage import (
    CHECKPOINT_IDS_FILE_NAME as CHECKPOINT_IDS_FILE_NAME,
    CHECKPOINT_PREFIX as CHECKPOINT_PREFIX,
    INCARNATION_FILE_NAME as INCARNATION_FILE_NAME,
    WORKING_DIR_NAME as WORKING_DIR_NAME,
    CheckpointStorage as CheckpointStorage,
)
