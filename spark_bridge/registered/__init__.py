"""Data sources by which plain Spark reads what Weir keeps: ``register`` makes them known to a session. ``state_source``
reads checkpoints and savepoints, ``run_tables`` the checkpoint table of a run, ``trace_table`` its trace,
``log_table`` a log on disk. ``source_options`` checks what users give, and ``typed_columns`` turns stored values into
columns.
"""

from __future__ import annotations

from spark_bridge.registered.registration import register as register
