"""The files that tasks keep beside them while they run: those of their state backends, and copies of their snapshots.

They lie below the job's directory in checkpoint storage, so that all files are in one place. An object store cannot
hold them; then they lie below the output directory of the run. None of them outlives the run.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Container

from engine.checkpoint.coordinator import TaskId
from engine.graph.plan import ExecutionPlan, SubtaskPlan, VertexPlan
from state_backends.files import FileSystem, LocalFileSystem
from state_backends.local import LocalRecoveryCounts, LocalStateStores
from state_backends.snapshots import WORKING_DIR_NAME, CheckpointStorage, safe_file_name

LOCAL_STATE_NAME = "local"
_LOCAL_ROOT = ".weir-local"


def local_state_name(subtask: SubtaskPlan, vertex: VertexPlan) -> str:
    """The name of a task's local state, the same in every attempt."""
    return f"{vertex.operators[0].uid}-{subtask.subtask}"


class LocalFiles:
    """Where the local files of one run are.

    ``counts``  the counts of local recovery;
    ``stores``  where tasks keep copies of their state, ``None`` = they keep none.
    """

    def __init__(
        self,
        storage: CheckpointStorage,
        output_dir: str,
        *,
        keeps_state: bool,
        note: Callable[[str], None],
        attempt: str = "",
    ) -> None:
        """``attempt``: not empty when several attempts may run at the same time, each in a directory of its own."""
        self.file_system: FileSystem = storage.file_system
        root = storage.job_dir
        if "://" in root:
            self.file_system = LocalFileSystem()
            root = posixpath.join(output_dir, _LOCAL_ROOT, safe_file_name(posixpath.basename(root)))
        self.working_dir = posixpath.join(root, WORKING_DIR_NAME, *filter(None, [attempt]))
        self._local_dir = posixpath.join(root, LOCAL_STATE_NAME)
        self.counts = LocalRecoveryCounts(note)
        self.stores = LocalStateStores(self.file_system, self._local_dir, self.counts) if keeps_state else None

    def deployed(self, plan: ExecutionPlan) -> None:
        """All tasks are deployed: delete copies of other tasks, which are useless now."""
        if self.stores is not None:
            self.stores.retain(local_state_name(one, plan.vertices[one.vertex]) for one in plan.subtasks)

    def lost(self, plan: ExecutionPlan, ids: Container[TaskId]) -> None:
        """The disks of these tasks are gone, and the copies on them."""
        if self.stores is not None:
            left = (one for one in plan.subtasks if (one.vertex, one.subtask) not in ids)
            self.stores.retain(local_state_name(one, plan.vertices[one.vertex]) for one in left)

    def sweep(self) -> None:
        """Delete the files of an earlier run. No task runs.

        Raises :class:`OSError` when something cannot be deleted.
        """
        self.file_system.delete_tree(self.working_dir)
        if self.stores is None:
            self.file_system.delete_tree(self._local_dir)

    def report(self) -> dict[str, int] | None:
        """The counts of local recovery, ``None`` when it is off."""
        if self.stores is None:
            return None
        return {
            "local_restores": self.counts.local_restores,
            "remote_fallbacks": self.counts.remote_fallbacks,
            "secondary_failures": self.counts.secondary_failures,
        }

    def close(self) -> None:
        """The run is over."""
        if self.stores is not None:
            self.stores.dispose()
