"""What people see while a command runs: consoles on standard error, a progress line on a terminal, and how far an
exploration is.
"""

from __future__ import annotations

from engine.cli.text.exploration import coverage_table, how_far, report_plain, sometimes_table, summary_line
from engine.cli.text.terminal import (
    error_console,
    job_output_dropped,
    progress_line,
    progress_of,
    say,
    stdout_kept_clean,
)

__all__ = [
    "coverage_table",
    "error_console",
    "how_far",
    "job_output_dropped",
    "progress_line",
    "progress_of",
    "report_plain",
    "say",
    "sometimes_table",
    "stdout_kept_clean",
    "summary_line",
]
