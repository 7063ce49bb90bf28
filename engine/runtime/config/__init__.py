"""The settings of a run: ``run_config`` holds those that users write, ``cost`` the virtual time that work takes. All
other rooms of the runtime read them.
"""

from __future__ import annotations

from engine.runtime.config.cost import CostModel as CostModel
from engine.runtime.config.run_config import (
    ALIGNED_TIMEOUT as ALIGNED_TIMEOUT,
    UNALIGNED as UNALIGNED,
    CheckpointInterval as CheckpointInterval,
    DebloatSettings as DebloatSettings,
    RunConfig as RunConfig,
    parse_duration_ns as parse_duration_ns,
)
