"""A log-structured merge tree: sorted bytes in files, written in one go and never changed, merged in the background.

| module              | what lives there                                                     |
|---------------------|----------------------------------------------------------------------|
| ``lsm_store``       | the store: reads, writes, snapshots, checkpoints                     |
| ``file_set``        | its durable half: the present files, the manifest, pins              |
| ``memtable``        | what is in no file yet, and scans of it with the files               |
| ``wal``             | the optional write-ahead log                                         |
| ``sst``             | files of entries, with ``block`` and ``bloom``                       |
| ``range_tombstones``| range tombstones                                                     |
| ``merge``           | several sorted sources as one                                        |
| ``version``         | the list of files as an immutable value, and edits of it             |
| ``compaction``      | which files to merge, and what is then: pure functions               |
| ``compaction_work`` | carrying that out in steps                                           |
| ``manifest``        | the log of edits, over ``records``                                   |
| ``files``           | names, links and copies                                              |
| ``backend``         | the store as a kind of store, and as a setting of a job              |

What it keeps of RocksDB, after which it is built: memtables, levels and their sizes, checkpoints of hard links, files
that never change and keep their names when they move. What it leaves out: sequence numbers (sources are ordered by
where they stand), threads, and durability of its own unless it is asked for.
"""

from __future__ import annotations

from state_backends.lsm.backend import LsmStateBackend as LsmStateBackend, LsmStoreKind as LsmStoreKind
from state_backends.lsm.lsm_store import LsmStore as LsmStore
from state_backends.lsm.manifest import read_manifest as read_manifest
from state_backends.lsm.store_options import LsmOptions as LsmOptions
