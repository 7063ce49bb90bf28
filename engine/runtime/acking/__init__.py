"""Record acking in a run: ackers (``acker_task``), tracking of a task's tuples (``bolt``), sources that send again
(``spout``), channels that outlive tasks (``acked_channel``), and the parts that all of them share (``acking_run``).

It plugs in from above, as the parts of :mod:`engine.runtime.tasks.tracking`; in other modes a run has none of them.
"""

from __future__ import annotations

from engine.runtime.acking.acker_task import AckerTask as AckerTask
from engine.runtime.acking.acking_run import (
    OFFSETS_FILE_NAME as OFFSETS_FILE_NAME,
    AckingRun as AckingRun,
    check_acking as check_acking,
)
