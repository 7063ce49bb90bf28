"""Bounded results that fill or overwrite a table when their job has succeeded. Jobs use ``staged_sink``;
``staging_writers`` stage rows, ``moves`` plans and carries out the one commit.
"""

from __future__ import annotations

from operators.table.staging.staged_sink import StagedFileSink as StagedFileSink, StagingFinalizer as StagingFinalizer
