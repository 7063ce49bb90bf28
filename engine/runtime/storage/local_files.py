"""The files that tasks keep beside them while they run: those of their state backends, and copies of their snapshots.

They lie below the job's directory in checkpoint storage, so that one place holds all there is; on an object store,
which is no place for them, below the output directory of the run. Nothing of it outlives the run.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable

from engine.graph.plan import ExecutionPlan, SubtaskPlan, VertexPlan
from state_backends.files import FileSystem, LocalFileSystem
from state_backends.local import LocalRecoveryCounts, LocalStateStores
from state_backends.snapshots import WORKING_DIR_NAME, CheckpointStorage, safe_file_name

LOCAL_STATE_NAME = "local"
_LOCAL_ROOT = ".weir-local"


def local_state_name(subtask: SubtaskPlan, vertex: VertexPlan) -> str:
    """What the local state of a task goes by, whatever the attempt."""
    return f"{vertex.operators[0].uid}-{subtask.subtask}"


class LocalFiles:
    """Where the local files of one run are.

    ``counts``  what local recovery did;
    ``stores``  where tasks keep copies of their state, ``None`` = they keep none.
    """

    def __init__(
        self, storage: CheckpointStorage, output_dir: str, *, keeps_state: bool, note: Callable[[str], None]
    ) -> None:
        self.file_system: FileSystem = storage.file_system
        root = storage.job_dir
        if "://" in root:
            self.file_system = LocalFileSystem()
            root = posixpath.join(output_dir, _LOCAL_ROOT, safe_file_name(posixpath.basename(root)))
        self.working_dir = posixpath.join(root, WORKING_DIR_NAME)
        self._local_dir = posixpath.join(root, LOCAL_STATE_NAME)
        self.counts = LocalRecoveryCounts(note)
        self.stores = LocalStateStores(self.file_system, self._local_dir, self.counts) if keeps_state else None

    def deployed(self, plan: ExecutionPlan) -> None:
        """All tasks are deployed: copies of others are of no use any more."""
        if self.stores is not None:
            self.stores.retain(local_state_name(one, plan.vertices[one.vertex]) for one in plan.subtasks)

    def sweep(self) -> None:
        """Delete what an earlier run has left. No task runs.

        Raises :class:`OSError` when something cannot be deleted.
        """
        self.file_system.delete_tree(self.working_dir)
        if self.stores is None:
            self.file_system.delete_tree(self._local_dir)

    def report(self) -> dict[str, int] | None:
        """What local recovery did, ``None`` when it is off."""
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
