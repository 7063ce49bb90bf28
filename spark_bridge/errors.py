"""The errors of the bridge to Spark.

All of them are meant for users: what went wrong, where, why, and what to install or change. A Java stack of
two hundred lines says none of this, so Spark's own errors are condensed here and
never chained.
"""

from __future__ import annotations

from engine.elements.errors import MissingDependencyError, WeirError


class SparkBridgeError(WeirError):
    """Base of all errors raised by `spark_bridge`: bad settings, bad rows, a Spark process that died."""

    exit_code = 25


class ClusterError(SparkBridgeError):
    """A cluster on this machine does not start, or has lost a process; the message says which one and why."""


class ExecutorError(SparkBridgeError):
    """Executors cannot run the job; the message names each host, its problem and the repair."""


class PySparkMissingError(MissingDependencyError, SparkBridgeError):
    """PySpark or PyArrow is not installed, or too old; the message names the extra that brings it."""


class JavaMissingError(MissingDependencyError, SparkBridgeError):
    """No Java of the required version was found; the message lists the searched places and what to install."""


class RowMisfitError(SparkBridgeError):
    """A row that does not fit the declared schema.

    Attributes:
        row: its position in the batch, from 0.
        problem: the mistake in it, and its repair.
        batch: the label of the batch, if it is known.
    """

    def __init__(self, row: int, problem: str, batch: str | None = None) -> None:
        self.row = row
        self.problem = problem
        self.batch = batch
        super().__init__(f"{'' if batch is None else f'batch {batch!r}, '}row {row}: {problem}")

    def in_batch(self, label: str) -> RowMisfitError:
        """The same error, which names the batch."""
        return RowMisfitError(self.row, self.problem, label)


class SparkTransformError(SparkBridgeError):
    """A function from DataFrame to DataFrame failed on one batch.

    Attributes:
        label: name of the batch, as given by the caller (`"month 3"`).
        function: module and qualified name of the user's function.
        location: `file:line` in the user's function where the error surfaced; None when it surfaced in Spark.
        cause_lines: the first lines of the cause, without Java frames.
        cause: the original exception, for programs that need more details.
    """

    def __init__(
        self,
        label: str,
        function: str,
        cause_lines: tuple[str, ...],
        *,
        location: str | None = None,
        cause: BaseException | None = None,
    ) -> None:
        self.label = label
        self.function = function
        self.location = location
        self.cause_lines = cause_lines
        self.cause = cause
        where = f"{function} ({location})" if location else function
        body = "\n  ".join(cause_lines)
        super().__init__(f"Spark batch {label!r} failed in {where}:\n  {body}")


class OracleInputError(SparkBridgeError):
    """Committed output that an oracle cannot read: a torn line, a field too many, a value of another type."""


class OracleSchemaError(SparkBridgeError):
    """Two DataFrames that cannot be compared because their columns differ."""
