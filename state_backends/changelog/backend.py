"""The changelog state backend as a setting of a job."""

from __future__ import annotations

from state_backends.api import BackendEnvironment, StateBackend
from state_backends.base import StateArgumentError
from state_backends.changelog.keyed_backend import ChangelogKeyedStateBackend, ChangelogSettings

DEFAULT_MATERIALIZATION_INTERVAL_MS = 600_000
"""Ten minutes (state.changelog.periodic-materialize.interval)."""
DEFAULT_SEGMENT_BYTES = 1 << 20
DEFAULT_MAX_MATERIALIZATION_FAILURES = 3
"""As Flink: state.changelog.max-failures-allowed."""


class ChangelogStateBackend:
    """A log of changes over another backend (Flink: ``ChangelogStateBackend``).

    :ivar name: ``changelog``, with the name of what it stands over unless that is the heap
    :ivar incremental: whether materialisations use files of earlier ones
    """

    def __init__(
        self,
        inner: StateBackend,
        *,
        materialization_interval_ms: int | None = DEFAULT_MATERIALIZATION_INTERVAL_MS,
        segment_bytes: int = DEFAULT_SEGMENT_BYTES,
        max_materialization_failures: int = DEFAULT_MAX_MATERIALIZATION_FAILURES,
    ) -> None:
        """A changelog over ``inner``.

        :param materialization_interval_ms: from one materialisation to the next; ``None`` = never
        :param segment_bytes: the log is cut, and uploaded in the background, when so much has gathered
        :param max_materialization_failures: after how many failures in a row one is the job's problem
        :raises StateArgumentError: when a number is not positive, or ``inner`` is a changelog itself
        """
        numbers = {
            "materialization_interval_ms": materialization_interval_ms,
            "segment_bytes": segment_bytes,
            "max_materialization_failures": max_materialization_failures,
        }
        for name, number in numbers.items():
            if number is not None and number < 1:
                raise StateArgumentError(f"changelog backend: {name} must be at least 1, not {number}.")
        if isinstance(inner, ChangelogStateBackend):
            raise StateArgumentError("a changelog cannot stand over a changelog: name what keeps the state.")
        self.inner = inner
        self.settings = ChangelogSettings(materialization_interval_ms, segment_bytes, max_materialization_failures)
        self.name = "changelog" if inner.name == "heap" else f"changelog:{inner.name}"
        self.incremental = inner.incremental

    def create_keyed_backend(self, environment: BackendEnvironment) -> ChangelogKeyedStateBackend:
        return ChangelogKeyedStateBackend(self.inner.create_keyed_backend(environment), environment, self.settings)
