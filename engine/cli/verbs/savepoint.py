"""``weir savepoint``: make a savepoint of the newest checkpoint in a storage directory, without running the job."""

from __future__ import annotations

import posixpath

import click

from engine.cli.runs import hold_directory, newest_usable
from engine.cli.settings import SAVEPOINTS_NAME, accept_option, place, read_descriptor
from engine.cli.text import error_console, say
from engine.elements.errors import StorageError
from engine.elements.events import SavepointFormat
from engine.report.units import format_bytes, plural
from state_backends.base import StateBackendError
from state_backends.files import FileSystem
from state_backends.snapshots import (
    CheckpointMetadata,
    CheckpointStorage,
    FileStateHandle,
    FullKeyedStateHandle,
    copy_as_savepoint,
    new_savepoint,
)

_HELP = """Make a savepoint of the newest usable checkpoint in DIR, a storage directory no run is using.

Everything that the checkpoint refers to is copied and verified: the savepoint is one directory that needs nothing
else, may be moved, and is never deleted by Weir. Its path is printed on standard output. The job can be started from
it with weir run JOB --from PATH. Of an incremental checkpoint it is one in native format, from which only the same
state backend starts.

\b
Examples:
  weir savepoint state/
  weir savepoint state/ --savepoint-dir /backup
"""


@click.command("savepoint", help=_HELP)
@click.argument("directory", metavar="DIR")
@click.option(
    "--savepoint-dir", metavar="DIR", help="Directory in which the savepoint gets its own. [default: DIR/savepoints]"
)
@accept_option
def command(directory: str, savepoint_dir: str | None, accept_descriptor: bool) -> int:
    file_system, directory = place(directory)
    target = place(posixpath.join(directory, SAVEPOINTS_NAME) if savepoint_dir is None else savepoint_dir)
    # Before holding the directory, which would create a missing one.
    read_descriptor(file_system, directory, accept=accept_descriptor)
    with hold_directory(file_system, directory):
        descriptor = read_descriptor(file_system, directory, accept=accept_descriptor)
        name = descriptor.job_name
        if descriptor.stopped_with is not None:
            say(error_console(), f"note: the job stopped with savepoint {descriptor.stopped_with}, which is newer")
        storage = CheckpointStorage(file_system, directory, name)
        checkpoint_id, problems = newest_usable(storage, directory)
        for problem in problems:
            say(error_console(), f"warning: {problem}")
        if checkpoint_id is None:
            raise StorageError(f"{directory}: no checkpoint has completed, so there is nothing to make a savepoint of")
        path = _copy(storage, name, checkpoint_id, *target)
    click.echo(path)
    return 0


def _copy(storage: CheckpointStorage, name: str, checkpoint_id: int, file_system: FileSystem, target: str) -> str:
    source = storage.location(checkpoint_id)
    try:
        metadata = source.read_metadata()
        properties = {"kind": "savepoint", "format": _format_of(metadata)}
        location = new_savepoint(file_system, target, name, checkpoint_id, storage.incarnation())
        copied = copy_as_savepoint(file_system, source, metadata, location, properties)
    except OSError as error:
        raise StorageError(
            f"{error.filename or target}: cannot be written ({error.strerror or error})\n"
            "  fix: choose a directory that you may write to, with free space, by --savepoint-dir"
        ) from error
    except StateBackendError as error:
        raise StorageError(str(error)) from error
    files = [stream for stream in copied.streams() if isinstance(stream, FileStateHandle)]
    say(
        error_console(),
        f"savepoint of checkpoint {checkpoint_id} of job {name}: {format_bytes(copied.size_bytes)} of state,"
        f" {plural(len(files), 'file')}, every byte verified",
    )
    subtasks = [one for operator in copied.operators for one in operator.subtasks.values()]
    if any(one.input_channels or one.output_channels for one in subtasks):
        say(
            error_console(),
            "note: the checkpoint was unaligned, so the savepoint holds records in flight as well; one taken by a run"
            " (--savepoint-at) holds none",
        )
    return location.directory


def _format_of(metadata: CheckpointMetadata) -> str:
    """The form of a copy of this checkpoint: files of a store can be read only by that store."""
    keyed = [one.keyed for operator in metadata.operators for one in operator.subtasks.values()]
    is_full = all(handle is None or isinstance(handle, FullKeyedStateHandle) for handle in keyed)
    form = SavepointFormat.CANONICAL if is_full else SavepointFormat.NATIVE
    return form.value
