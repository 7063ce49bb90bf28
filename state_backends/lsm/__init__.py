"""A log-structured merge tree: files of sorted bytes, each written once, never changed, and merged in the background.

| module              | what lives there                                                     |
|---------------------|----------------------------------------------------------------------|
| ``lsm_store``       | the store: reads, writes, snapshots, checkpoints                     |
| ``file_set``        | its durable half: the present files, the manifest, pins              |
| ``memtable``        | entries that are in no file yet, and scans of them with the files    |
| ``wal``             | the optional write-ahead log                                         |
| ``sst``             | files of entries, with ``block`` and ``bloom``                       |
| ``range_tombstones``| range tombstones                                                     |
| ``merge``           | several sorted sources as one                                        |
| ``fixed_width``     | the same for entries of one width, as arrays                         |
| ``version``         | the list of files as an immutable value, and edits of it             |
| ``compaction``      | which files to merge, and the version afterwards: pure functions     |
| ``compaction_work`` | carries out a compaction in steps                                    |
| ``manifest``        | the log of edits, over ``records``                                   |
| ``files``           | names, links and copies                                              |
| ``backend``         | the store as a kind of store, and as a setting of a job              |

The model is RocksDB. The store has its memtables, its levels and their sizes, its checkpoints of hard links, and files
that never change and keep their names when they move. It has no sequence numbers (the place of a source gives its age)
and no threads. It is durable by itself only with ``wal`` and ``sync``.
"""

from __future__ import annotations

from state_backends.lsm.backend import LsmStateBackend as LsmStateBackend, LsmStoreKind as LsmStoreKind
from state_backends.lsm.lsm_store import LsmStore as LsmStore
from state_backends.lsm.manifest import read_manifest as read_manifest
from state_backends.lsm.store_options import LsmOptions as LsmOptions
