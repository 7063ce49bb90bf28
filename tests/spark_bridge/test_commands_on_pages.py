"""README and the page about jobs on Spark show real runs: their commands print, one after the other, what stands there.

A command after which the page shows `Killed` dies by SIGKILL in the batch after the checkpoint that the next one
restores.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.documents import transcripts
from tests.house.project import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.spark]

_KILLED = "Killed"
_ELSEWHERE = ("47077", "delays.py", "weir explore")
"""A cluster that runs already, a job that the page does not show, and the search, which has tests of its own."""
_PATIENCE_SECONDS = 240


def _blocks(page: str) -> Iterator[list[transcripts.Command]]:
    """The commands of each console block that this test can run."""
    text = (ROOT / page).read_text("utf-8")
    for block in transcripts.blocks(text):
        if block.language == "console":
            found = list(transcripts.commands(f"```console\n{block.text}```\n"))
            runs_here = all(one.text.startswith(("weir ", "cat ")) for one in found)
            if runs_here and not any(word in one.text for one in found for word in _ELSEWHERE):
                yield found


def _of_any_directory(lines: list[str]) -> list[str]:
    """A checkpoint holds absolute paths, and so do digests."""
    return [re.sub(r"trace digest \w+", "trace digest", line.replace("/tmp/try/", "")) for line in lines]


def _killed(command: str, checkpoint: str, directory: Path) -> list[str]:
    """What a run prints until it is killed, after this checkpoint and before the next."""
    _, *arguments = command.partition("  #")[0].split()
    run = subprocess.Popen(
        [sys.executable, "-m", "engine.cli", *arguments],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not list(directory.glob(f"st/*/chk-{checkpoint}/_metadata")):
        assert run.poll() is None, run.communicate()[1]
        assert time.monotonic() < deadline, f"checkpoint {checkpoint} is not there"
        time.sleep(0.005)
    os.killpg(run.pid, signal.SIGKILL)
    return [*run.communicate()[1].splitlines(), _KILLED]


@pytest.mark.parametrize("page", ["README.md", "docs/jobs-on-spark.md"])
def test_commands_print_what_the_page_says(page: str, tmp_path: Path) -> None:
    """Each block in a directory of its own; one run dies in the middle, and the next one goes on."""
    compared = kills = 0
    for number, block in enumerate(_blocks(page)):
        directory = tmp_path / str(number)
        directory.mkdir()
        (directory / "examples").symlink_to(ROOT / "examples")
        for command, following in zip(block, [*block[1:], None], strict=True):
            if _KILLED in command.printed:
                assert following is not None
                restored = re.search(r"^restored checkpoint (\d+)$", "\n".join(following.printed), re.MULTILINE)
                assert restored, f"{page}: what follows $ {command.text} restores nothing"
                printed = _killed(command.text, restored[1], directory)
                kills += 1
            else:
                printed = transcripts.run_command(command.text, directory, ROOT)
            shown = transcripts.is_shown(_of_any_directory(command.printed), _of_any_directory(printed))
            assert shown, f"$ {command.text}\n" + "\n".join(printed)
            compared += 1
    assert kills == 1
    assert compared >= 4
