"""What README.md shows is what happens: the transcripts, and the commands to type, in their order.

Left out is what takes minutes or needs Spark (`make demo`); the long run of the word count is made short. That it can
be killed and resumed at any moment is the business of `tests/crash`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.house import transcripts
from tests.house.project import ROOT

_LONG, _SHORT = "repeat=1000000", "repeat=2000"


def _page(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with the programs of the README, and `visits.py`, which it takes from a page."""
    for page in ("README.md", "docs/exploration.md"):
        for file_name, program in transcripts.named_programs(_page(page)).items():
            (tmp_path / file_name).write_text(program, "utf-8")
    return tmp_path


@pytest.mark.parametrize("name", ["README.md", "docs/exploration.md"])
def test_transcripts_show_what_happens(name: str, place: Path) -> None:
    """Each command prints what stands below it; a token that is cut is the one printed last."""
    found, token = list(transcripts.commands(_page(name))), ""

    assert found
    for command in found:
        printed = transcripts.run_command(transcripts.with_token(command.text, token), place, ROOT)
        assert transcripts.is_shown(command.printed, printed), f"$ {command.text}\n" + "\n".join(printed)
        token = transcripts.last_token(printed) or token


def test_commands_of_the_readme_work(place: Path) -> None:
    """Those of `weir` succeed one after the other, and leave what their comments say."""
    found = [one.text for one in transcripts.shell_commands(_page("README.md")) if one.text.startswith("weir ")]

    assert sum(_LONG in text for text in found) == 1
    assert len(found) >= 8
    for text in found:
        printed = transcripts.run_command(f"{text.replace(_LONG, _SHORT)} && echo succeeded", place, ROOT)
        assert printed[-1] == "succeeded", f"$ {text}\n" + "\n".join(printed)
        if "--kill" in text:
            assert any("count -> file-sink[0] was killed" in line for line in printed)
    for counts in ("out/wordcount/latest/counts", "state/out/counts"):
        rows = sum(len(part.read_text("utf-8").splitlines()) for part in (place / counts).glob("word=*/part-*"))
        assert rows == 6 * (1_000 if counts.startswith("out") else 2_000)
