"""What people type, and what is kept of it: job files, options, restart strategies, places, and the job descriptor that
a storage directory goes on with.
"""

from __future__ import annotations

from engine.cli.settings.descriptor import (
    ACCEPT_OPTION,
    CLAIM_MODES,
    OUTPUT_NAME,
    RESERVED_NAMES,
    SAVEPOINTS_NAME,
    JobDescriptor,
    accept_option,
    has_descriptor,
    note_descriptor,
    note_stopped,
    read_descriptor,
    write_descriptor,
)
from engine.cli.settings.job_file import LoadedJob, load_builder, load_job
from engine.cli.settings.options import RunOptions, config_options, modes, parse_params, run_options, state_options
from engine.cli.settings.places import absolute, is_url, place

__all__ = [
    "ACCEPT_OPTION",
    "CLAIM_MODES",
    "JobDescriptor",
    "LoadedJob",
    "OUTPUT_NAME",
    "RESERVED_NAMES",
    "RunOptions",
    "SAVEPOINTS_NAME",
    "absolute",
    "accept_option",
    "config_options",
    "has_descriptor",
    "is_url",
    "load_builder",
    "load_job",
    "modes",
    "note_descriptor",
    "note_stopped",
    "parse_params",
    "place",
    "read_descriptor",
    "run_options",
    "state_options",
    "write_descriptor",
]
