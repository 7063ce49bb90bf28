"""The settings of a run: ``run_config`` holds those that users write, ``cost`` the virtual time that work takes;
``settings_table`` is the table of all, ``where`` names places to run a job. All other rooms of the runtime read them.
"""

from __future__ import annotations

from engine.elements.durations import parse_duration_ns as parse_duration_ns
from engine.runtime.config.cost import CostModel as CostModel
from engine.runtime.config.kinds import CheckpointInterval as CheckpointInterval, ServiceOfRecord as ServiceOfRecord
from engine.runtime.config.run_config import (
    ALIGNED_TIMEOUT as ALIGNED_TIMEOUT,
    UNALIGNED as UNALIGNED,
    ChannelCredit as ChannelCredit,
    DebloatSettings as DebloatSettings,
    RunConfig as RunConfig,
)
from engine.runtime.config.settings_table import (
    OPTIONS as OPTIONS,
    PRESETS as PRESETS,
    SETTINGS as SETTINGS,
    JobSettings as JobSettings,
    config_of as config_of,
    find_setting as find_setting,
    read_setting as read_setting,
)
from engine.runtime.config.where import SIMULATOR as SIMULATOR, SparkCluster as SparkCluster, parse_where as parse_where
