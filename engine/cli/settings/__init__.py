"""User input, and the stored part of it: job files, options, restart strategies, places, and the job descriptor with
which a storage directory is resumed.
"""

from __future__ import annotations

from engine.cli.settings.descriptor import (
    ACCEPT_OPTION as ACCEPT_OPTION,
    CLAIM_MODES as CLAIM_MODES,
    OUTPUT_NAME as OUTPUT_NAME,
    RESERVED_NAMES as RESERVED_NAMES,
    SAVEPOINTS_NAME as SAVEPOINTS_NAME,
    JobDescriptor as JobDescriptor,
    accept_option as accept_option,
    has_descriptor as has_descriptor,
    note_descriptor as note_descriptor,
    note_stopped as note_stopped,
    read_descriptor as read_descriptor,
    write_descriptor as write_descriptor,
)
from engine.cli.settings.given_settings import (
    GivenSettings as GivenSettings,
    definition_option as definition_option,
    given_settings as given_settings,
    preset_option as preset_option,
    setting_options as setting_options,
)
from engine.cli.settings.job_file import (
    LoadedJob as LoadedJob,
    load_builder as load_builder,
    load_job as load_job,
    load_maker as load_maker,
)
from engine.cli.settings.places import absolute as absolute, is_url as is_url, place as place
from engine.cli.settings.run_options import (
    STATE_SETTINGS as STATE_SETTINGS,
    RunOptions as RunOptions,
    config_options as config_options,
    decorated as decorated,
    html_option as html_option,
    modes as modes,
    parse_params as parse_params,
    perfetto_option as perfetto_option,
    run_options as run_options,
    state_options as state_options,
)
