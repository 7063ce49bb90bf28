"""The display while a command runs: consoles on standard error, a progress line on a terminal, and the progress of an
exploration.
"""

from __future__ import annotations

from engine.cli.text.exploration import (
    coverage_table as coverage_table,
    how_far as how_far,
    report_plain as report_plain,
    sometimes_table as sometimes_table,
    summary_line as summary_line,
)
from engine.cli.text.terminal import (
    error_console as error_console,
    job_output_dropped as job_output_dropped,
    progress_line as progress_line,
    progress_of as progress_of,
    say as say,
    stdout_kept_clean as stdout_kept_clean,
)
