"""Which worker gets which tests when several share a run."""

from __future__ import annotations

from typing import Any

from xdist.scheduler import LoadGroupScheduling


class FilesTogether(LoadGroupScheduling):
    """A group shares a worker, and so do the other tests of a file: what a module makes once, one worker makes.

    Groups come first, for they take long, then files in the order of their collection. By default those with most tests
    would come first, and so the longest tests last, when the other worker has nothing left to do.
    """

    def __init__(self, config: Any, log: Any) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return super()._split_scope(nodeid).partition("::")[0]

    def _assign_work_unit(self, node: Any) -> None:
        group = next((scope for scope in self.workqueue if not scope.endswith(".py")), None)
        if group is not None:
            self.workqueue.move_to_end(group, last=False)
        super()._assign_work_unit(node)
