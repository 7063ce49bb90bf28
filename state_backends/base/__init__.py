"""The base of all other rooms: errors, key types and key groups, descriptors of states with their time-to-live, the
check of shapes, the copy-on-write table that is divided by key groups, background work, JSON with a checksum, numpy at
first use. These modules do not touch files and do not know file formats.
"""

from __future__ import annotations

from state_backends.base.errors import (
    CorruptStateError as CorruptStateError,
    KeyGroupError as KeyGroupError,
    KeyTypeError as KeyTypeError,
    MissingStateError as MissingStateError,
    RestoreCancelledError as RestoreCancelledError,
    SnapshotCancelledError as SnapshotCancelledError,
    StateArgumentError as StateArgumentError,
    StateBackendError as StateBackendError,
    StateMigrationError as StateMigrationError,
    StateRestoreError as StateRestoreError,
    StateSchemaError as StateSchemaError,
    StateSerializationError as StateSerializationError,
    StorageInUseError as StorageInUseError,
    StorageNotWritableError as StorageNotWritableError,
)
from state_backends.base.executor import (
    BackgroundWork as BackgroundWork,
    Executor as Executor,
    InlineExecutor as InlineExecutor,
)
from state_backends.base.key_groups import (
    UPPER_BOUND_MAX_PARALLELISM as UPPER_BOUND_MAX_PARALLELISM,
    KeyGroupRange as KeyGroupRange,
    check_parallelism as check_parallelism,
    default_max_parallelism as default_max_parallelism,
    foreign_key as foreign_key,
    key_group_for as key_group_for,
    key_group_function as key_group_function,
    key_group_range_for_index as key_group_range_for_index,
    operator_index_for_key_group as operator_index_for_key_group,
)
from state_backends.base.key_types import (
    BOOL as BOOL,
    BYTES as BYTES,
    INT as INT,
    LONG as LONG,
    STRING as STRING,
    KeyType as KeyType,
    check_keys as check_keys,
    check_lengths as check_lengths,
    infer_key_type as infer_key_type,
    java_hash_code as java_hash_code,
    java_hash_function as java_hash_function,
    key_type_shape as key_type_shape,
    tuple_of as tuple_of,
)
from state_backends.base.lazy_numpy import np as np
from state_backends.base.sealed_json import (
    CHECKSUM as CHECKSUM,
    parse_json as parse_json,
    seal_json as seal_json,
    unseal_json as unseal_json,
)
from state_backends.base.shapes import (
    Shape as Shape,
    anything as anything,
    as_written as as_written,
    below as below,
    binary as binary,
    check_shape as check_shape,
    fields as fields,
    flag as flag,
    list_of as list_of,
    map_of as map_of,
    nothing as nothing,
    number as number,
    of_type as of_type,
    one_of as one_of,
    optional as optional,
    path_below as path_below,
    positive as positive,
    row as row,
    such_that as such_that,
    tagged as tagged,
    text as text,
    values as values,
    whole as whole,
)
from state_backends.base.sharded_table import (
    IMMUTABLE_TYPES as IMMUTABLE_TYPES,
    MISSING as MISSING,
    FrozenShard as FrozenShard,
    KeyCache as KeyCache,
    PinnedValues as PinnedValues,
    Shard as Shard,
    ShardedTable as ShardedTable,
    TableSnapshot as TableSnapshot,
    values_are_immutable as values_are_immutable,
)
from state_backends.base.state_descriptors import (
    RESERVED_NAME_PREFIX as RESERVED_NAME_PREFIX,
    AggregatingStateDescriptor as AggregatingStateDescriptor,
    ListStateDescriptor as ListStateDescriptor,
    MapStateDescriptor as MapStateDescriptor,
    ReducingStateDescriptor as ReducingStateDescriptor,
    StateDescriptor as StateDescriptor,
    StateKind as StateKind,
    ValueStateDescriptor as ValueStateDescriptor,
)
from state_backends.base.ttl_settings import (
    MAX_TIME_MS as MAX_TIME_MS,
    Expiring as Expiring,
    StateTtlConfig as StateTtlConfig,
    StateVisibility as StateVisibility,
    UpdateType as UpdateType,
)
from state_backends.base.value_class import value_class as value_class
