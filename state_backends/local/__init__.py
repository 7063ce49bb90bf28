"""Local recovery: each checkpoint leaves a copy of a task's state beside the task, and a restore prefers that copy.
A task uses ``recovery``; ``state_store`` keeps the copies; ``task_copy`` makes a copy, over
``duplicating_streams``.
"""

from __future__ import annotations

from state_backends.local.recovery import (
    LocalRecoveryCounts as LocalRecoveryCounts,
    LocalStateStores as LocalStateStores,
    TaskLocalRecovery as TaskLocalRecovery,
)
from state_backends.local.task_copy import LocalSnapshot as LocalSnapshot
