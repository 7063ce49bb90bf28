"""The layer between the shell and a verb: the check at start-up, wrong usage, errors with their exit codes, and the
ways in which a command is ended from outside. It knows no verb and no job.
"""

from __future__ import annotations

from engine.cli.shell.endings import (
    EXIT_INTERRUPTED as EXIT_INTERRUPTED,
    EXIT_TERMINATED as EXIT_TERMINATED,
    ReaderGone as ReaderGone,
    Terminated as Terminated,
    flush_streams as flush_streams,
    standard_streams as standard_streams,
    termination as termination,
)
from engine.cli.shell.failures import (
    EXIT_CODES as EXIT_CODES,
    exit_code_of_failure as exit_code_of_failure,
    failure_text as failure_text,
    is_expected as is_expected,
)
from engine.cli.shell.start_up import start_up_problem as start_up_problem
from engine.cli.shell.usage import (
    AtLeast as AtLeast,
    OneOf as OneOf,
    no_such_verb as no_such_verb,
    usage_text as usage_text,
)
