"""The options about savepoints: which ones to take during a run, and from which one it starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from engine.cli.settings import CLAIM_MODES, absolute, decorated, place
from engine.cli.shell import OneOf
from engine.elements.errors import ConfigurationError
from engine.runtime.execution import Execution
from engine.runtime.storage import SavepointRestore, find_checkpoint

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

DEFAULT_FORM = "canonical"


@dataclass(frozen=True, slots=True)
class SavepointWishes:
    """The typed options. Times are texts; ``directory`` is ``None`` for the default."""

    times: tuple[str, ...] = ()
    directory: str | None = None
    form: str = DEFAULT_FORM
    stop_time: str | None = None
    drains: bool = False

    def check(self) -> None:
        """Raise :class:`ConfigurationError` when options contradict each other or a time is not readable."""
        self._parsed()
        if self.drains and self.stop_time is None:
            raise ConfigurationError("--drain says how a job stops, but not when: add --stop-with-savepoint TIME")
        if self.times or self.stop_time is not None:
            return
        if self.directory is not None:
            raise ConfigurationError(
                "--savepoint-dir says where savepoints go, but none is asked for: add --savepoint-at TIME"
            )
        if self.form != DEFAULT_FORM:
            raise ConfigurationError(
                f"--savepoint-format {self.form} says how savepoints are written, but none is asked for: add"
                " --savepoint-at TIME"
            )

    def _parsed(self) -> tuple[list[int], int | None]:
        from engine.runtime.config import parse_duration_ns

        times_ns = [parse_duration_ns(time, "--savepoint-at") for time in self.times]
        if self.stop_time is None:
            return times_ns, None
        return times_ns, parse_duration_ns(self.stop_time, "--stop-with-savepoint")

    def install(self, execution: Execution, default_directory: str) -> None:
        """Order the savepoints of a run. Raises :class:`ConfigurationError` when its mode takes none."""
        from engine.elements.events import SavepointFormat, StopMode

        times_ns, stop_ns = self._parsed()
        target = absolute(default_directory if self.directory is None else self.directory)
        form = SavepointFormat(self.form)
        for at_ns in times_ns:
            execution.savepoint(at_ns, target, savepoint_format=form)
        if stop_ns is not None:
            stop = StopMode.TERMINATE if self.drains else StopMode.SUSPEND
            execution.savepoint(stop_ns, target, savepoint_format=form, stop=stop)

    def option_of(self, number: int) -> str:
        """The option that requested the savepoint with this number, for use in a message."""
        if number < len(self.times):
            return f"--savepoint-at {self.times[number]}"
        return f"--stop-with-savepoint {self.stop_time}"


def savepoint_options(command: CommandT) -> CommandT:
    """The options that make up :class:`SavepointWishes`."""
    decorators = (
        click.option(
            "--savepoint-at",
            "savepoint_times",
            multiple=True,
            metavar="TIME",
            help="Take a savepoint then, so long after the start. Repeatable.",
        ),
        click.option(
            "--savepoint-dir",
            metavar="DIR",
            help="Directory in which savepoints get theirs. [default: savepoints/ in the storage or output directory]",
        ),
        click.option(
            "--savepoint-format",
            type=OneOf(["canonical", "native"]),
            default=DEFAULT_FORM,
            show_default=True,
            help="How savepoints are written.",
        ),
        click.option(
            "--stop-with-savepoint",
            "stop_time",
            metavar="TIME",
            help="Stop the job then, with a savepoint to go on from.",
        ),
        click.option(
            "--drain", is_flag=True, help="Stop at the end of event time: every window closes before the savepoint."
        ),
    )
    return decorated(command, decorators)


def restore_options(command: CommandT) -> CommandT:
    """The options that choose the snapshot from which a new run starts."""
    decorators = (
        click.option(
            "--from",
            "restore_path",
            metavar="PATH",
            help="Start from the state in a savepoint, a checkpoint, or the newest one in a storage directory.",
        ),
        click.option(
            "--claim-mode",
            type=OneOf(CLAIM_MODES),
            help="Whose it is then: the user's (no-claim), the job's, which deletes it once it is not needed (claim), "
            "or neither (legacy). [default: no-claim]",
        ),
    )
    return decorated(command, decorators)


def restore_from(path: str | None, claim_mode: str | None, backend: str) -> SavepointRestore | None:
    """The snapshot from which a new run on a state backend of that name starts.

    Raises :class:`ConfigurationError` on a mode without a path, :class:`engine.elements.errors.StorageError` when
    there is no snapshot, :class:`engine.elements.errors.JobChangedError` when it is in a form that the state
    backend cannot read, and :class:`state_backends.base.StateBackendError` when its metadata is damaged.
    """
    from engine.checkpoint.coordinator import RestoreMode
    from engine.runtime.storage import SavepointRestore, check_claimable, check_forms

    if path is None:
        if claim_mode is not None:
            raise ConfigurationError(f"--claim-mode {claim_mode} says whose a savepoint is: add --from PATH")
        return None
    found = find_checkpoint(*place(path))
    # Before anything is created: the same command with another backend must find the same place free.
    check_forms(found.location().read_metadata(), backend)
    mode = RestoreMode(claim_mode or CLAIM_MODES[0])
    check_claimable(found.file_system, found.directory, mode)
    return SavepointRestore(found.directory, mode)
