"""The job descriptor: all that a storage directory must know to resume its job after a crash.

``weir run --storage DIR`` writes it, atomically, before the job starts; ``weir resume DIR`` reads it. A directory
belongs to one job from then on. It is JSON, because people look into it. A changed file is refused, because it decides
which files are read and where output goes. A user who has edited it confirms that with
``--accept-descriptor``; then it gets a new checksum.
"""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from engine.cli.settings.run_options import RunOptions
from engine.elements.errors import StorageError
from state_backends.base import CHECKSUM, parse_json, seal_json, unseal_json
from state_backends.files import FileSystem, write_atomically

if TYPE_CHECKING:
    from engine.runtime.storage import SavepointRestore

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

DESCRIPTOR_NAME = "weir-job.json"
DESCRIPTOR_FORMAT = "weir-job"
DESCRIPTOR_VERSION = 2
_VERSION_WITHOUT_CHECKSUM = 1

ACCEPT_OPTION = "--accept-descriptor"
"""The option that accepts a changed descriptor."""

OUTPUT_NAME = "out"
"""Directory for relative sink paths of a job with a storage directory, inside it, unless ``--out`` names another."""

SAVEPOINTS_NAME = "savepoints"
"""Default directory of savepoints: in the storage directory if there is one, else in the output directory."""

RESERVED_NAMES = (DESCRIPTOR_NAME, OUTPUT_NAME, SAVEPOINTS_NAME, "lock")
"""Names in a storage directory that no job may have: the checkpoints of a job lie in a directory of its name."""


CLAIM_MODES = ("no-claim", "claim", "legacy")
"""Owners of a snapshot that a job is started from; the first mode is the default."""


@dataclass(frozen=True, slots=True)
class JobDescriptor:
    """Which job a storage directory belongs to and how it runs. Paths are absolute.

    ``output_dir``   relative to the storage directory when it lies inside it;
    ``working_dir``  where the run was started: relative paths of the job's sources are resolved there;
    ``restore_path``, ``claim_mode``  the snapshot it was started from, if any, and the mode that decides its owner;
    ``stopped_with``  the savepoint that it was stopped with: this directory must then not be resumed;
    ``on``           where it runs, as ``--on`` names it; ``None`` = in the simulator.
    """

    job_file: str
    job_name: str
    params: Mapping[str, str]
    options: RunOptions
    output_dir: str
    working_dir: str
    weir_version: str
    restore_path: str | None = None
    claim_mode: str | None = None
    stopped_with: str | None = None
    on: str | None = None

    def restore_from(self) -> SavepointRestore | None:
        from engine.checkpoint.coordinator import RestoreMode
        from engine.runtime.storage import SavepointRestore

        if self.restore_path is None:
            return None
        return SavepointRestore(self.restore_path, RestoreMode(self.claim_mode))

    def summary(self) -> str:
        """Its decisions, in one line."""
        params = ", ".join(f"{name}={value}" for name, value in self.params.items())
        start = "" if self.restore_path is None else f", started from {self.restore_path} ({self.claim_mode})"
        where = "" if self.on is None else f", on {self.on}"
        return (
            f"job {self.job_name} of {self.job_file}{where}, parameters {params or 'none'},"
            f" options {' '.join(self.options.as_arguments()) or 'none'}, output in {self.output_dir},"
            f" working directory {self.working_dir}{start}"
        )

    def to_json(self) -> str:
        state = {
            "format": DESCRIPTOR_FORMAT,
            "format_version": DESCRIPTOR_VERSION,
            "weir_version": self.weir_version,
            "job_file": self.job_file,
            "job_name": self.job_name,
            "params": dict(self.params),
            "options": self.options.as_dict(),
            "output_dir": self.output_dir,
            "working_dir": self.working_dir,
            "restore_path": self.restore_path,
            "claim_mode": self.claim_mode,
            "stopped_with": self.stopped_with,
        }
        if self.on is not None:
            state["on"] = self.on
        return seal_json(state)

    @classmethod
    def from_json(cls, text: str, path: str, *, accept: bool = False) -> JobDescriptor:
        """Reads the text of :meth:`to_json`. ``accept``: also a changed text, as long as it is valid, and one without a
        checksum, as older versions wrote it.

        Raises :class:`StorageError` on any other text.
        """
        try:
            state = parse_json(text)
            if state.get("format") != DESCRIPTOR_FORMAT:
                raise ValueError("it is no job descriptor")
            version = state.get("format_version")
            is_older = type(version) is int and version == _VERSION_WITHOUT_CHECKSUM
            if not accept and is_older and CHECKSUM not in state:
                raise _not_accepted(path, "was written by an older version of Weir, without a checksum")
            if accept:
                state.pop(CHECKSUM, None)
            else:
                state = unseal_json(text)
            if not is_older and (type(version) is not int or version != DESCRIPTOR_VERSION):
                raise StorageError(
                    f"{path}: has format version {version!r}, this version of Weir reads {DESCRIPTOR_VERSION}\n"
                    f"  fix: resume with Weir {state.get('weir_version', 'of the version that wrote it')}"
                )
            _check_names(state, _LATER_NAMES if is_older else ())
            return cls(
                job_file=_text(state, "job_file"),
                job_name=_text(state, "job_name"),
                params=_params(state),
                # An unchanged file may be of a version that had fewer options.
                options=RunOptions.from_dict(state["options"], path, complete=accept and not is_older),
                output_dir=_text(state, "output_dir"),
                working_dir=_text(state, "working_dir"),
                weir_version=_text(state, "weir_version"),
                restore_path=_text_or_none(state, "restore_path"),
                claim_mode=_claim_mode(state),
                stopped_with=_text_or_none(state, "stopped_with"),
                on=_text_or_none(state, "on"),
            )
        except (ValueError, TypeError) as error:
            raise _not_accepted(path, f"is damaged, was edited or is no job descriptor ({error})", accept) from error


def _not_accepted(path: str, problem: str, accept: bool = False) -> StorageError:
    directory = posixpath.dirname(path) or "DIR"
    command = shlex.join(["weir", "resume", directory, ACCEPT_OPTION])
    fix = "correct it" if accept else f"read it, and if its content is right: {command}"
    return StorageError(
        f"{path}: {problem}\n"
        "  it names the job, its options and its output, so the job was not started; the checkpoints beside it may be"
        " intact: look with weir inspect\n"
        f"  fix: restore it from a copy; or {fix}"
    )


def accept_option(command: CommandT) -> CommandT:
    """The option of the verbs that use a descriptor."""
    return click.option(
        ACCEPT_OPTION,
        "accept_descriptor",
        is_flag=True,
        help=f"Take {DESCRIPTOR_NAME} as it is, edited or of an older version; weir resume gives it a new checksum.",
    )(command)


def _check_names(state: Mapping[str, Any], may_be_missing: tuple[str, ...]) -> None:
    unknown = [name for name in state if name not in (*_NAMES, _ON)]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is nothing that a job descriptor says")
    missing = [name for name in _NAMES if name not in state and name not in may_be_missing]
    if missing:
        raise ValueError(f"{missing[0]!r} is missing")


def _text(state: Mapping[str, Any], name: str) -> str:
    value = state[name]
    if not isinstance(value, str):
        raise TypeError(f"{name} is {value!r}, not a text")
    # A path contains no NUL or lone surrogate. (Bytes that are not UTF-8 come as surrogates that do encode.)
    value.encode("utf-8", "surrogateescape")
    if not value or "\0" in value:
        raise ValueError(f"{name} is {value!r}, which names nothing")
    return value


def _text_or_none(state: Mapping[str, Any], name: str) -> str | None:
    return None if state.get(name) is None else _text(state, name)


_NAMES = (
    "format", "format_version", "weir_version", "job_file", "job_name", "params", "options", "output_dir",
    "working_dir", "restore_path", "claim_mode", "stopped_with",
)  # fmt: skip
_ON = "on"
"""Only in the descriptor of a run that is not simulated."""
_LATER_NAMES = ("restore_path", "claim_mode", "stopped_with")
"""Older versions could not start from a savepoint, or stop with one."""


def _claim_mode(state: Mapping[str, Any]) -> str | None:
    mode = _text_or_none(state, "claim_mode")
    if mode not in (None, *CLAIM_MODES):
        raise ValueError(f"claim_mode {mode!r} is none of {', '.join(CLAIM_MODES)}")
    if (mode is None) != (state.get("restore_path") is None):
        raise ValueError("restore_path and claim_mode belong together")
    return mode


def _params(state: Mapping[str, Any]) -> dict[str, str]:
    params = state["params"]
    if not isinstance(params, dict) or not all(isinstance(value, str) for value in params.values()):
        raise TypeError(f"params is {params!r}, not names with texts")
    return params


def descriptor_path(directory: str) -> str:
    return posixpath.join(directory, DESCRIPTOR_NAME)


def has_descriptor(file_system: FileSystem, directory: str) -> bool:
    """Whether a job was started with this storage directory."""
    return file_system.exists(descriptor_path(directory))


def write_descriptor(file_system: FileSystem, directory: str, descriptor: JobDescriptor) -> None:
    """Bind a storage directory to a job, durably. The caller holds the directory and has checked that it is free.
    Raises :class:`StorageError` when it cannot be written."""
    assert not has_descriptor(file_system, directory), f"{directory}: its descriptor would be overwritten"
    note_descriptor(file_system, directory, descriptor)


def note_stopped(file_system: FileSystem, directory: str, savepoint: str) -> None:
    """Record, as :func:`note_descriptor` does, that the job was stopped with a savepoint."""
    descriptor = read_descriptor(file_system, directory)
    note_descriptor(file_system, directory, replace(descriptor, stopped_with=savepoint))


def note_descriptor(file_system: FileSystem, directory: str, descriptor: JobDescriptor) -> None:
    """Record, durably, how the job of a storage directory continues. The caller holds it. Raises
    :class:`StorageError` when it cannot be written."""
    path = descriptor_path(directory)
    try:
        write_atomically(file_system, path, descriptor.to_json().encode())
    except OSError as error:
        raise StorageError(f"{path}: cannot be written ({error.strerror or error})") from error


def read_descriptor(file_system: FileSystem, directory: str, *, accept: bool = False) -> JobDescriptor:
    """The job that a storage directory belongs to. ``accept``: as of :meth:`JobDescriptor.from_json`. Raises
    :class:`StorageError` when there is no such directory, no descriptor in it, or a damaged one."""
    path = descriptor_path(directory)
    if not file_system.is_dir(directory):
        raise StorageError(
            f"{directory}: there is no such storage directory\n"
            f"  fix: check the path, or start a run with weir run JOB.py --storage {directory}"
        )
    if not file_system.exists(path):
        raise StorageError(
            f"{directory}: no run was started here ({DESCRIPTOR_NAME} is missing), so there is nothing to resume\n"
            f"  fix: start one with weir run JOB.py --storage {directory}"
        )
    try:
        text = file_system.read_bytes(path).decode()
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error}") from error
    except UnicodeDecodeError as error:
        raise _not_accepted(path, f"is damaged ({error})", accept) from error
    return JobDescriptor.from_json(text, path, accept=accept)
