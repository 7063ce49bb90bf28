"""Replay tokens: one run in one line of text, short enough for a chat message.

``weir2.`` and then base64url without padding of: a checksum of 4 bytes, and the rest, packed and perhaps compressed.
The rest names the job (file, digest of the file, parameters, a fingerprint of its plan), the promise that runs are
judged by, the version of Weir's code, and the case: either completely, or as the seed that it was drawn from with the
possible draws. ``weir1.`` is the same without the digest of the file.

A token is refused, with the reason, rather than misread: when it is torn, of another format, of another job, or drawn
by a version with other draws. Another version of Weir alone is no reason to refuse it.

Loading a job file runs it, and a token may come from anyone. So a token by itself loads a job file only if the file is
below the working directory and has the content that the token records; any other file must be named by the user.
"""

from __future__ import annotations

import base64
import binascii
import os
import shlex
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from typing import Any

import msgpack

from engine.elements import errors
from engine.elements.errors import ConfigurationError
from engine.explore.cases import SETTINGS, Case, case_to_plain, plain_to_case
from engine.explore.run import Subject
from engine.explore.search.swarm import NO_RUN, SWARM_VERSION, Swarm, draw_case
from state_backends.base import (
    CorruptStateError,
    binary,
    check_shape,
    fields,
    list_of,
    map_of,
    optional,
    row,
    text,
    whole,
)
from state_backends.files import LocalFileSystem

PREFIX = "weir2."
_PREFIX_WITHOUT_DIGEST = "weir1."
FAMILY = "weir"
_CHECKSUM_BYTES = 4
_PLAIN, _COMPRESSED = b"\x00", b"\x01"
_PACKAGES = ("engine", "operators", "state_backends")


@dataclass(frozen=True, slots=True)
class Drawn:
    """A case as the seed that it was drawn from, with the possible draws."""

    seed: str
    swarm: Swarm
    version: int = SWARM_VERSION


@dataclass(frozen=True, slots=True)
class Token:
    """One run.

    ``job``          the job file, relative when it lies below the working directory; ``""`` when the job comes from
                     no file;
    ``job_digest``   of that file, by :func:`digest_of_job_file`; ``""`` when it is not known;
    ``fingerprint``  of the job's plan: another fingerprint means another job;
    ``run``          the case, or its seed;
    ``promise``      the promise that the output is judged by, ``None`` = that of the mode;
    ``digest``       of the trace, shortened; ``None`` when it is not known;
    ``code``         of Weir's sources, as they were when the token was made.
    """

    job: str
    params: Mapping[str, str]
    fingerprint: str
    run: Case | Drawn
    promise: str | None = None
    digest: str | None = None
    code: str = ""
    job_digest: str = ""

    @classmethod
    def of(cls, subject: Subject, run: Case | Drawn, *, promise: str | None = None, digest: str | None = None) -> Token:
        short = None if digest is None else digest[:_DIGEST_CHARACTERS]
        job, fingerprint = _named(subject.path), job_fingerprint(subject)
        return cls(job, subject.params, fingerprint, run, promise, short, code_fingerprint(), subject.job_digest)

    def distrust(self) -> str | None:
        """Why the job file that the token names must not be loaded unless the user names it, too; ``None``: it may."""
        if not self.job or "\0" in self.job:
            return "this run does not record its job file"
        if not self.job_digest:
            return f"this run was recorded by an older Weir, without what was in its job file {self.job!r}"
        path = os.path.realpath(self.job)
        if not _is_below_here(path):
            return f"the job file {self.job!r} of this run is not below the working directory"
        if not os.path.isfile(path):
            return f"the job file {self.job!r} of this run is not there"
        return self.distrust_content(LocalFileSystem().read_bytes(path))

    def distrust_content(self, content: bytes) -> str | None:
        """The same check for the content of a job file."""
        if digest_of_job_file(content) != self.job_digest:
            return f"the job file {self.job!r} has changed since this run was recorded, or is another file"
        return None

    def command(self, verb: str, subject: Subject, place: str | None = None) -> str:
        """The argument with which ``weir VERB`` acts on this run of a job, in the present state of files.

        ``place``: the file or directory that the run was written to, ``None`` = the token itself is the argument.
        """
        named = subject.path is None or (self.distrust() is None and os.path.realpath(self.job) == subject.path)
        run = str(self) if place is None else place
        return shlex.join(["weir", verb, run, *([] if named else ["--job", _named(subject.path)])])

    def check(self, subject: Subject) -> None:
        """Refuse a job that is not the token's. Raises :class:`ConfigurationError` naming the difference."""
        found = job_fingerprint(subject)
        if found != self.fingerprint:
            raise ConfigurationError(
                f"the token is of another job: {self.job or 'a job'} was {self.fingerprint} when it was made, and"
                f" {subject.path or subject.label} is {found} now\n"
                "  the graph, a name or a parallelism has changed, or a parameter is another; a token is only good for"
                " the job it was made from\n"
                "  fix: check out the job as it was, or name it with --job PATH"
            )

    def to_case(self, subject: Subject) -> Case:
        """The case to run. Raises :class:`ConfigurationError` when this version draws other cases than the one that
        made the token."""
        run = self.run
        if isinstance(run, Case):
            return run
        if run.version != SWARM_VERSION:
            raise ConfigurationError(
                f"the token stands for seed {run.seed!r}, drawn by version {run.version} of the swarm; this is version"
                f" {SWARM_VERSION}, which draws another run from it\n"
                f"  fix: replay it with the code that made it ({self.code}), or explore again"
            )
        return draw_case(run.swarm, subject.measure(), run.seed)

    def is_of_this_code(self, subject: Subject) -> bool:
        """Whether neither Weir nor the job file has changed since the token was made."""
        return self.code == code_fingerprint() and self.job_digest == subject.job_digest

    def __str__(self) -> str:
        packed = msgpack.packb(self._plain(), use_bin_type=True)
        compressed = zlib.compress(packed, 9)
        body = _COMPRESSED + compressed if len(compressed) < len(packed) else _PLAIN + packed
        return PREFIX + base64.urlsafe_b64encode(_checksum(body) + body).decode().rstrip("=")

    def _plain(self) -> list[Any]:
        run: list[Any]
        if isinstance(self.run, Case):
            plain = case_to_plain(self.run)
            if "schedule" in plain:
                plain["schedule"] = _packed(plain["schedule"])
            run = [plain]
        else:
            swarm = self.run.swarm
            kinds = None if swarm.kinds is None else list(swarm.kinds)
            drawn_from = [list(swarm.modes), dict(swarm.fixed), kinds, dict(swarm.usual), swarm.savepoints]
            run = [self.run.seed, self.run.version, *drawn_from]
        job_digest = bytes.fromhex(self.job_digest)
        return [self.job, dict(self.params), self.fingerprint, self.code, self.promise, self.digest, run, job_digest]


_DIGEST_CHARACTERS = 16


def parse_token(written: str) -> Token:
    """The token in this text. Raises :class:`ConfigurationError` when it is torn, or not of this format."""
    written = "".join(written.split())
    if not written.startswith((PREFIX, _PREFIX_WITHOUT_DIGEST)):
        family, dot, _ = written.partition(".")
        if dot and family.startswith(FAMILY) and family[len(FAMILY) :].isdigit():
            raise ConfigurationError(
                f"the token has format {family}, and this version of Weir reads {PREFIX[:-1]}\n"
                "  fix: use the version that made it, or explore again"
            )
        raise ConfigurationError(f"this is no token: it should begin with {PREFIX!r}; it is {written[:20]!r}…")
    encoded = written[len(PREFIX) :]  # both prefixes are of one length
    try:
        raw = base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise _torn(f"{error}") from error
    checksum, body = raw[:_CHECKSUM_BYTES], raw[_CHECKSUM_BYTES:]
    if not body or checksum != _checksum(body):
        raise _torn("its checksum is wrong")
    try:
        packed = zlib.decompress(body[1:]) if body[:1] == _COMPRESSED else body[1:]
        plain = msgpack.unpackb(packed)
        has_digest = written.startswith(PREFIX)
        check_shape(plain, _TOKEN if has_digest else _TOKEN_WITHOUT_DIGEST, "the token", "it")
        job, params, fingerprint, code, promise, digest, run, *job_digest = plain
        return Token(job, params, fingerprint, _parse_run(run), promise, digest, code, *map(bytes.hex, job_digest))
    except (CorruptStateError, ValueError, zlib.error, msgpack.UnpackException) as error:
        raise ConfigurationError(
            f"the token is malformed: {error.what if isinstance(error, CorruptStateError) else error}\n"
            "  no version of Weir makes such a token\n  fix: copy it again from where it was made, or explore again"
        ) from error


_SWARM = (text, whole, list_of(text), SETTINGS, optional(list_of(text)), SETTINGS)
_DRAWN, _DRAWN_BEFORE_SAVEPOINTS = row(*_SWARM, text), row(*_SWARM)
_CONCRETE = row(fields({}, {"schedule": list_of(whole)}))


def _run(value: Any) -> None:
    """Checks a complete case, or a seed and its possible draws."""
    known = {1: _CONCRETE, len(_SWARM): _DRAWN_BEFORE_SAVEPOINTS}
    (known.get(len(value), _DRAWN) if isinstance(value, list) else _DRAWN)(value)


_FIELDS = (text, map_of(text, text), text, text, optional(text), optional(text), _run)
_TOKEN, _TOKEN_WITHOUT_DIGEST = row(*_FIELDS, binary), row(*_FIELDS)


def _parse_run(run: list[Any]) -> Case | Drawn:
    if len(run) == 1:
        plain = dict(run[0])
        if "schedule" in plain:
            plain["schedule"] = _unpacked(plain["schedule"])
        return plain_to_case(plain)
    seed, version, modes, fixed, kinds, usual, *savepoints = run
    swarm = Swarm(tuple(modes), fixed, None if kinds is None else tuple(kinds), usual, *(savepoints or [NO_RUN]))
    return Drawn(seed, swarm, version)


def _packed(schedule: list[list[int]]) -> list[int]:
    """``[[number, value], …]`` as distances and values in turn: nearly all of them fit into a byte."""
    flat, last = [], 0
    for number, value in schedule:
        flat += [number - last, value]
        last = number
    return flat


def _unpacked(flat: list[int]) -> list[list[int]]:
    schedule, number = [], 0
    for distance, value in zip(flat[::2], flat[1::2], strict=True):
        number += distance
        schedule.append([number, value])
    return schedule


def _torn(why: str) -> ConfigurationError:
    return ConfigurationError(
        f"the token is torn: {why}\n  fix: copy it as a whole; it is one word, whatever its length"
    )


def _checksum(body: bytes) -> bytes:
    return blake2b(body, digest_size=_CHECKSUM_BYTES).digest()


def job_fingerprint(subject: Subject) -> str:
    """The identity of a job: the fingerprint of its plan, shortened."""
    return subject.plan().fingerprint[:16]


def digest_of_job_file(content: bytes) -> str:
    """The identity of a job file's content. Another file with the same digest cannot be made."""
    return blake2b(content, digest_size=16).hexdigest()


def _named(path: str | None) -> str:
    """The name of a job file in a token. A token made below a directory is valid in any copy of that directory."""
    if path is None:
        return ""
    return os.path.relpath(path, os.path.realpath(".")) if _is_below_here(path) else path


def _is_below_here(path: str) -> bool:
    here = os.path.realpath(".")
    return os.path.commonpath([here, os.path.realpath(path)]) == here


@cache
def code_fingerprint() -> str:
    """The identity of the code that decides a run: a digest of Weir's sources, in 12 digits."""
    files = LocalFileSystem()
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(errors.__file__))))
    digest = blake2b(digest_size=6)
    for package in _PACKAGES:
        sources = [path for path in sorted(files.walk_files(os.path.join(root, package))) if path.endswith(".py")]
        # Without sources all versions would have one identity, and a run that differs would count as V16.
        assert sources, f"{root} has no sources of {package}"
        for path in sources:
            digest.update(os.path.relpath(path, root).encode() + b"\0")
            digest.update(files.read_bytes(path))
    return digest.hexdigest()
