"""The real RocksDB, through the package ``rocksdict`` (extra ``rocksdb``): ``rocksdb_store`` implements the port of
ordered stores, ``backend`` is the setting of a job. The package is loaded when a store is opened.
"""

from __future__ import annotations

from state_backends.rocksdb.backend import RocksDBStateBackend as RocksDBStateBackend
