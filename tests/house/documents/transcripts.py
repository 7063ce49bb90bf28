"""Programs and transcripts of the Markdown pages, so that tests can run them and compare.

A page shows three things: a Python program, directly followed by a `text` block with what it prints; a program that
names its file in its first line (`# compare.py`); and a `console` block, in which `$ command` is followed by what is
printed. A line with only `…` stands for any number of lines, one that ends with it for all that begin so; programs
and commands run in `/tmp/try` as far as a page is concerned. What differs from machine to machine (versions of Python,
seconds, and tokens, which hold the directory) is not compared.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ELLIPSIS = "…"
_PAGE_DIRECTORY = "/tmp/try"
_PATIENCE_SECONDS = 600
"""A command never takes so long, on whatever machine: it hangs."""
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_OF_THE_MACHINE = (
    (re.compile(r"\(Python [\d.]+\)"), "(Python)"),
    (re.compile(r"\b\d+\.\d s\b"), "0 s"),
    (re.compile(r"\b(seconds|runs_per_s)=[\d.]+"), r"\1=0"),
    (re.compile(r"\bweir2\.[\w-]+…?"), "weir2"),
)
_FILE_NAME = re.compile(r"# ([\w-]+\.py)\b")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page.

    :ivar language: the word after the opening fence
    :ivar text: what is in it
    :ivar line: of the page, where it begins
    :ivar follows: whether nothing but an empty line is between it and the block before
    """

    language: str
    text: str
    line: int
    follows: bool


def blocks(page: str) -> Iterator[Block]:
    end = 0
    for match in _FENCE.finditer(page):
        follows = end > 0 and not page[end : match.start()].strip()
        yield Block(match[1], match[2], page[: match.start()].count("\n") + 1, follows)
        end = match.end()


def printing_programs(page: str) -> Iterator[tuple[Block, str]]:
    before: Block | None = None
    for block in blocks(page):
        if before is not None and before.language == "python" and block.language == "text" and block.follows:
            yield before, block.text
        before = block


def named_programs(page: str) -> Mapping[str, str]:
    """Programs by the name of their file, which stands in their first line."""
    found = {}
    for block in blocks(page):
        if block.language == "python" and (name := _FILE_NAME.match(block.text)):
            found[name[1]] = block.text
    return found


@dataclass(slots=True)
class Command:
    """A command of a console block, and its output."""

    text: str
    line: int
    printed: list[str] = field(default_factory=list)


def commands(page: str) -> Iterator[Command]:
    for block in blocks(page):
        if block.language != "console":
            continue
        command: Command | None = None
        for offset, text in enumerate(block.text.splitlines(), start=1):
            if text.startswith("$ "):
                if command is not None:
                    yield command
                command = Command(text[2:], block.line + offset)
            elif command is not None and command.text.endswith("\\") and not command.printed:
                command.text = f"{command.text[:-1].rstrip()} {text.strip()}"
            elif command is not None:
                command.printed.append(text)
        if command is not None:
            yield command


def shell_commands(page: str) -> Iterator[Command]:
    """The lines of all `sh` blocks, in order, without comments; their output is not shown."""
    for block in blocks(page):
        for offset, text in enumerate(block.text.splitlines() if block.language == "sh" else (), start=1):
            yield Command(re.sub(r"(^|\s+)# .*", "", text), block.line + offset)


def last_token(printed: list[str]) -> str:
    """The token of a run that was printed last; empty if none was."""
    found = re.findall(r"\bweir2\.[\w-]+", "\n".join(printed))
    return found[-1] if found else ""


def with_token(command: str, token: str) -> str:
    """A command with the whole token instead of one that the page cuts."""
    return re.sub(r"\bweir2\.[\w-]*…", lambda _: token, command)


def run_program(program: str, directory: Path, root: Path) -> str:
    """The output of a program; its standard error if it fails."""
    done = _run([sys.executable, "-c", program.replace(_PAGE_DIRECTORY, str(directory))], directory, root)
    return done.stdout if done.returncode == 0 else done.stderr


def run_command(text: str, directory: Path, root: Path) -> list[str]:
    """The lines that a command prints, first on standard error and then on standard output, as a page shows them."""
    python = shlex.quote(sys.executable)
    functions = f'weir() {{ {python} -m engine.cli "$@"; }}; python() {{ {python} "$@"; }}; '
    done = _run(["bash", "-c", functions + text.replace(_PAGE_DIRECTORY, str(directory))], directory, root)
    printed = (done.stderr + done.stdout).replace(str(directory), _PAGE_DIRECTORY)
    return printed.splitlines()


def _run(arguments: list[str], directory: Path, root: Path) -> subprocess.CompletedProcess[str]:
    environment = {"PYTHONPATH": str(root), "COLUMNS": "80", "LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"}
    options: dict[str, Any] = {"capture_output": True, "text": True, "timeout": _PATIENCE_SECONDS}
    return subprocess.run(arguments, check=False, cwd=directory, env=environment, **options)


def is_shown(shown: list[str], printed: list[str]) -> bool:
    """Whether a page shows the printed text; trailing blanks do not count."""
    pattern = "".join(_pattern(_of_any_machine(line)) for line in shown)
    text = "".join(_of_any_machine(line) + "\n" for line in printed)
    return re.fullmatch(pattern, text) is not None


def _pattern(line: str) -> str:
    if line.strip() == ELLIPSIS:
        return r"(?:[^\n]*\n)*?"
    begins, cut, behind = line.partition(ELLIPSIS)
    return re.escape(line) + "\n" if not cut or behind else re.escape(begins) + "[^\n]*\n"


def _of_any_machine(line: str) -> str:
    for what, instead in _OF_THE_MACHINE:
        line = what.sub(instead, line)
    return line.rstrip()
