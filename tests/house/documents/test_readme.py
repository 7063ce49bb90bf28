"""What README.md and the tour show is what happens: the transcripts, and the commands to type, in their order.

Left out is what takes minutes or needs Spark (`make demo`); the long run of the word count is made short. That it can
be killed and resumed at any moment is the business of `tests/crash`.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.house.documents import transcripts
from tests.house.project import ROOT

_PAGES = ("README.md", "docs/tour.md")
_LONG, _SHORT = "repeat=1000000", "repeat=2000"


def _page(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with the examples, as beside the README, and the programs that pages show."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    for page in ("README.md", "docs/exploration.md"):
        for file_name, program in transcripts.named_programs(_page(page)).items():
            (tmp_path / file_name).write_text(program, "utf-8")
    return tmp_path


@pytest.mark.parametrize("name", ["docs/tour.md", "docs/exploration.md", "docs/glossary.md"])
def test_transcripts_show_what_happens(name: str, place: Path) -> None:
    """Each command prints the text below it; a token that is cut is the one printed last."""
    found, token = list(transcripts.commands(_page(name))), ""

    assert found
    for command in found:
        printed = transcripts.run_command(transcripts.with_token(command.text, token), place, ROOT)
        assert transcripts.is_shown(command.printed, printed), f"$ {command.text}\n" + "\n".join(printed)
        token = transcripts.last_token(printed) or token


@pytest.mark.parametrize(("page", "name"), [("README.md", "wordcount.py"), ("docs/exploration.md", "visits.py")])
def test_programs_of_the_pages_are_examples(page: str, name: str) -> None:
    """A program that a page shows and names is a file in `examples/`, so the commands below it need no preparation."""
    shown = transcripts.named_programs(_page(page))[name].partition("\n")[2]

    # Pages show a program without its blank lines.
    example, program = (re.sub(r"\n+", "\n", text) for text in ((ROOT / "examples" / name).read_text("utf-8"), shown))
    assert example.endswith(program)


@pytest.mark.parametrize("name", _PAGES)
def test_every_command_of_the_readme_is_tried_or_built(name: str) -> None:
    """A line to type is one of `weir`, which a test runs, a target of `make`, or the activation of its environment."""
    targets = re.findall(r"^([a-z-]+):.*## ", _page("Makefile"), re.MULTILINE)
    for one in transcripts.shell_commands(_page(name)):
        program, _, rest = one.text.partition(" ")
        known = program == "weir" or (program == "make" and rest in targets) or one.text == ". .venv/bin/activate"
        assert not one.text or known, one.text


@pytest.mark.slow
def test_commands_within_the_text_work(place: Path) -> None:
    """Commands that a sentence names succeed, or find the failure that they should find."""
    weir = re.findall(r"`(weir [a-z]+ [^`]+)`", "\n".join(map(_page, _PAGES)))

    assert "weir replay failure/" in weir
    transcripts.run_command("weir explore examples/visits.py --fault crash --out failure", place, ROOT)
    for text in weir:
        printed = transcripts.run_command(f"{text}; echo code $?", place, ROOT)
        # weir check has a bound by the wall clock.
        codes = ("code 0", "code 1", "code 2") if text.startswith("weir check") else ("code 0", "code 1")
        assert printed[-1] in codes, f"$ {text}\n" + "\n".join(printed)
        assert any("Next: weir " in line for line in printed)


def test_commands_of_the_readme_work(place: Path) -> None:
    """Those of `weir` succeed one after the other, here and in the tour, and leave what their comments say."""
    pages = "\n".join(map(_page, _PAGES))
    found = [one.text for one in transcripts.shell_commands(pages) if one.text.startswith("weir ")]

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
