"""How a run is set: ``run_config`` is what users write, ``cost`` what work takes in virtual time. All other rooms of
the runtime read it.
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
