"""A token of another user: which job file it may have loaded (that is, run), and which only the user may."""

from __future__ import annotations

import base64
import json
import os
import shlex
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

import msgpack
import pytest

from engine.cli.cases import load_subject
from engine.explore.cases import FIFO, Case
from engine.explore.search import Token, digest_of_job_file
from tests.cli.conftest import Weir
from tests.explore.failing_job import JOB_FILE

CASE = Case(scheduler=FIFO)
VERBS = [["replay"], ["shrink"], ["diff"], ["diff", "good"]]
TRAP = "from pathlib import Path\n\nPath(__file__).with_name('sprung').touch()\n"


@pytest.fixture
def job(weir: Weir) -> Weir:
    """The command line in a directory `here` with the job; beside it lies a directory `away`."""
    for name in ("here", "away"):
        (weir.directory / name).mkdir()
    (weir.directory / "here" / "counts.py").write_text(JOB_FILE)
    os.chdir(weir.directory / "here")
    return weir


def token() -> Token:
    """Of a run of the job that violates nothing."""
    return Token.of(load_subject("counts.py", {"records": "12"}), CASE)


def naming(path: str, content: str = TRAP) -> str:
    return str(replace(token(), job=path, job_digest=digest_of_job_file(content.encode())))


def refused(job: Weir, verb: list[str], name: str, trap: Path, named: str) -> str:
    """Have a verb refuse a token, without loading the trap; its advice must name the job file `named`."""
    good = [str(token()) if word == "good" else word for word in verb]

    answer = job(*good, name)

    assert answer.exit_code == 11, answer.stderr
    assert not trap.with_name("sprung").exists()
    assert answer.stderr.rstrip().endswith(shlex.join(["weir", *good, name, "--job", named]))
    return answer.stderr


@pytest.mark.parametrize("verb", VERBS)
def test_a_file_elsewhere_is_not_loaded(job: Weir, verb: list[str]) -> None:
    """Not even if it is exactly the file of the token; the error says what to type if the user means it."""
    trap = job.directory / "away" / "trap.py"
    trap.write_text(TRAP)

    for path in (str(trap), "../away/trap.py"):
        assert "not below the working directory" in refused(job, verb, naming(path), trap, path)


@pytest.mark.parametrize("verb", VERBS)
def test_another_file_of_the_name_is_not_loaded(job: Weir, verb: list[str]) -> None:
    """Below the working directory, only the content counts that the token records."""
    trap = Path("trap.py")
    trap.write_text(TRAP + "# mended\n")

    assert "has changed" in refused(job, verb, naming("trap.py"), trap, "trap.py")


def test_a_file_that_is_swapped_after_the_look_is_not_loaded(job: Weir, monkeypatch: pytest.MonkeyPatch) -> None:
    """The verb runs the bytes that it compared, not a file that is there a moment later."""
    trap = Path("trap.py")
    trap.write_text("# harmless\n")
    name = naming("trap.py", "# harmless\n")
    looked = Token.distrust

    def swap(one: Token) -> str | None:
        problem = looked(one)
        trap.write_text(TRAP)
        return problem

    monkeypatch.setattr(Token, "distrust", swap)
    answer = job("replay", name)

    assert (answer.exit_code, "has changed" in answer.stderr) == (11, True)
    assert not trap.with_name("sprung").exists()


def test_a_link_out_of_the_directory_is_not_followed(job: Weir) -> None:
    """A file lies where it is, not where a link to it is."""
    trap = job.directory / "away" / "trap.py"
    trap.write_text(TRAP)
    Path("trap.py").symlink_to(trap)

    assert "not below" in refused(job, ["replay"], naming("trap.py"), trap, "trap.py")


@pytest.mark.parametrize("name", ["nothing.py", ".", "pipe", "a\0b", "line\nbreak.py"])
def test_what_is_no_file_is_not_opened(job: Weir, name: str) -> None:
    """A directory, a pipe that would wait for ever, a name that cannot be one: the file has to be named."""
    os.mkfifo("pipe")

    refused(job, ["replay"], naming(name), Path("trap.py"), "PATH")


def test_the_file_that_was_meant_is_loaded(job: Weir) -> None:
    """In any copy of the directory that holds the same file; a mended or moved one if it is named."""
    text = str(token())
    assert job("replay", text, "--no-story").exit_code == 0

    os.rename(job.directory / "here", job.directory / "copy")
    os.chdir(job.directory / "copy")
    assert job("replay", text, "--no-story").exit_code == 0

    os.rename("counts.py", "moved.py")
    refused(job, ["replay"], text, Path("trap.py"), "PATH")
    moved = job("replay", text, "--no-story", "--job", "moved.py")
    assert (moved.exit_code, "has changed" in moved.stderr) == (0, False)

    Path("counts.py").write_text(JOB_FILE + "# mended\n")
    mended = job("replay", text, "--no-story", "--job", "counts.py")
    assert (mended.exit_code, "has changed" in mended.stderr) == (0, True)


@pytest.mark.parametrize("verb", VERBS)
def test_a_token_without_digest_needs_the_file_named(job: Weir, verb: list[str]) -> None:
    """As older versions made them: good for the job file that the user names."""
    Path("trap.py").write_text(TRAP)
    packed = msgpack.packb(replace(token(), job="trap.py")._plain()[:-1])
    body = b"\0" + packed
    raw = blake2b(body, digest_size=4).digest() + body
    old = "weir1." + base64.urlsafe_b64encode(raw).decode().rstrip("=")

    assert "an older Weir" in refused(job, verb, old, Path("trap.py"), "trap.py")
    assert job("replay", old, "--no-story", "--job", "counts.py").exit_code == 0


def test_the_file_of_a_failure_is_trusted_no_further(job: Weir) -> None:
    """A `failure.json` goes by the token in it, and says the same for people; one that says otherwise is refused."""
    Path("trap.py").write_text(TRAP + "# mended\n")
    text = naming("trap.py")
    plain = {
        "format": "weir-failure", "version": 1, "job": "trap.py", "params": {"records": "12"}, "promise": None,
        "job_fingerprint": token().fingerprint, "token": text, "case": {"scheduler": FIFO},
        "violation": {"invariant": "V1"},
    }  # fmt: skip
    file = Path("failure.json")
    file.write_text(json.dumps(plain))

    for verb in (["replay"], ["shrink"], ["diff"]):
        refused(job, verb, "failure.json", Path("trap.py"), "trap.py")
    assert job("shrink", "failure.json", "--job", "counts.py").exit_code == 2
    for change in ({"job": "counts.py"}, {"params": {}}, {"promise": "none"}, {"case": {}}, {"job_fingerprint": "0"}):
        file.write_text(json.dumps(plain | change))
        answer = job("shrink", "failure.json", "--job", "counts.py")
        assert (answer.exit_code, f"its {next(iter(change))} is not that of its token" in answer.stderr) == (11, True)


def test_what_is_said_to_be_typed_can_be_typed(job: Weir) -> None:
    """Of a job file elsewhere, or of a mended one, the next command names it."""
    subject = load_subject("counts.py", {"records": "12"})
    assert Token.of(subject, CASE).command("replay", subject) == f"weir replay {token()}"
    Path("counts.py").write_text(JOB_FILE + "# mended\n")
    assert not token().command("shrink", subject).endswith("--job counts.py")
    assert Token.of(subject, CASE).command("shrink", subject).endswith("--job counts.py")

    os.chdir(job.directory / "away")
    elsewhere = Token.of(load_subject("../here/counts.py", {"records": "12"}), CASE)
    command = shlex.split(elsewhere.command("replay", subject))
    assert command[-2:] == ["--job", str(job.directory / "here" / "counts.py")]
    assert job(*command[1:], "--no-story").exit_code == 0
