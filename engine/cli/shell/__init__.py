"""What stands between the shell and a verb: the check at start-up, wrong usage, errors with their exit codes, and how
a command is ended from outside. Knows no verb and no job.
"""

from __future__ import annotations

from engine.cli.shell.endings import (
    EXIT_INTERRUPTED,
    EXIT_TERMINATED,
    ReaderGone,
    Terminated,
    flush_streams,
    standard_streams,
    termination,
)
from engine.cli.shell.failures import EXIT_CODES, exit_code_of_failure, failure_text, is_expected
from engine.cli.shell.start_up import start_up_problem
from engine.cli.shell.usage import AtLeast, OneOf, no_such_verb, usage_text

__all__ = [
    "AtLeast",
    "EXIT_CODES",
    "EXIT_INTERRUPTED",
    "EXIT_TERMINATED",
    "OneOf",
    "ReaderGone",
    "Terminated",
    "exit_code_of_failure",
    "failure_text",
    "flush_streams",
    "is_expected",
    "no_such_verb",
    "standard_streams",
    "start_up_problem",
    "termination",
    "usage_text",
]
