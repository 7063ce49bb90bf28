"""The check of the Markdown pages: links lead somewhere, commands and paths named in them exist.

A page that names a command that does not exist is worse than no page, and pages rot silently. So the check reads
them like code: links, fenced shell blocks (`sh`, `bash`, `console`) and inline code that starts with `make` or
`weir`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.house.determinism import Finding

_FENCE = re.compile(r"^\s*(```+|~~~+)\s*([\w-]*)")
_LINK = re.compile(r"\]\(<?([^()\s>]+(?:\([^()]*\))?[^()\s>]*)>?(?:\s+\"[^\"]*\")?\)")
_REFERENCE = re.compile(r"^\s{0,3}\[[^\]]+\]:\s+<?(\S+?)>?(?:\s|$)")
_HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$")
_INLINE_CODE = re.compile(r"`([^`]+)`")
_EXPLICIT_ANCHOR = re.compile(r"<a\s+(?:id|name)=\"([^\"]+)\"")
_SHELLS = ("sh", "bash", "shell", "console")
_ASSIGNMENT = re.compile(r"^\w+=")
_PROJECT_FOLDERS = (
    "engine", "operators", "state_backends", "spark_bridge", "tests", "benchmarks", "examples", "docs", ".ci",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Commands:
    """The commands that exist: targets of make, verbs of weir (asked only when a page names one)."""

    root: Path
    make_targets: Collection[str]
    weir_verbs: Callable[[], Collection[str]]


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    text: str
    language: str | None  # None outside fenced blocks


def _lines(page: str) -> Iterator[_Line]:
    fence, language = "", ""
    for number, text in enumerate(page.splitlines(), start=1):
        match = _FENCE.match(text)
        if match and not fence:
            fence, language = match.group(1), match.group(2)
        elif match and match.group(1).startswith(fence) and not match.group(2):
            fence = ""
        else:
            yield _Line(number, text, language if fence else None)


# --- links ---


def anchors(page: str) -> set[str]:
    """The fragments a page can be entered at: its headings as GitHub spells them, and explicit anchors."""
    found: set[str] = set()
    times: dict[str, int] = {}
    for line in _lines(page):
        if line.language is not None:
            continue
        found.update(_EXPLICIT_ANCHOR.findall(line.text))
        if heading := _HEADING.match(line.text):
            slug = _slug(heading.group(1))
            count = times.get(slug, 0)
            times[slug] = count + 1
            found.add(f"{slug}-{count}" if count else slug)
    return found


def _slug(heading: str) -> str:
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def check_links(page: str, path: Path, root: Path) -> Iterator[Finding]:
    """Relative links whose file or heading does not exist."""
    name = path.relative_to(root).as_posix()
    for line in _lines(page):
        if line.language is not None:
            continue
        prose = _INLINE_CODE.sub("", line.text)
        for target in (*_LINK.findall(prose), *_REFERENCE.findall(prose)):
            if problem := _link_problem(target, page, path):
                yield Finding(name, line.number, "link", problem)


def _link_problem(target: str, page: str, path: Path) -> str:
    if re.match(r"[a-z][a-z0-9+.-]*:", target):
        return ""  # another site: not ours to check, and not offline
    file_name, _, fragment = target.partition("#")
    linked = path.parent / file_name if file_name else path
    if not linked.exists():
        return f"{target}: there is no such file"
    if fragment and linked.suffix == ".md":
        text = linked.read_text("utf-8") if file_name else page
        if fragment not in anchors(text):
            return f"{target}: the page has no such heading"
    return ""


# --- commands ---


def check_commands(page: str, path: Path, commands: Commands) -> Iterator[Finding]:
    """Commands and project paths in shell blocks and inline code that do not exist."""
    name = path.relative_to(commands.root).as_posix()
    for line in _lines(page):
        for command in _commands_in(line):
            if problem := _command_problem(command, commands):
                yield Finding(name, line.number, "command", problem)


def _commands_in(line: _Line) -> Iterator[list[str]]:
    if line.language is None:
        texts = [code for code in _INLINE_CODE.findall(line.text) if re.match(r"(make|weir) [a-z-]", code)]
    elif line.language in _SHELLS:
        is_output = line.language == "console" and not line.text.startswith("$ ")
        texts = [] if is_output else [line.text.removeprefix("$ ")]
    else:
        texts = []
    for text in texts:
        for part in re.split(r"&&|\|\||[|;]", text.rstrip("\\")):
            words = _words(part)
            if words:
                yield words


def _words(text: str) -> list[str]:
    try:
        words = shlex.split(text, comments=True)
    except ValueError:  # a quote that goes on in the next line
        words = text.split()
    while words and _ASSIGNMENT.match(words[0]):
        words = words[1:]
    return words


def _command_problem(words: list[str], commands: Commands) -> str:
    program, arguments = words[0].rpartition("/")[2], words[1:]
    plain = [word for word in arguments if not word.startswith("-") and not _ASSIGNMENT.match(word)]
    if program == "make":
        unknown = [word for word in plain if re.fullmatch(r"[a-z-]+", word) and word not in commands.make_targets]
        return f"make has no target {unknown[0]}" if unknown else ""
    names_verb = program == "weir" and plain and re.fullmatch(r"[a-z-]+", plain[0])
    if names_verb and plain[0] not in commands.weir_verbs():
        return f"weir has no verb {plain[0]}"
    if re.fullmatch(r"python[\d.]*", program) and "-m" in arguments[:-1]:
        module = arguments[arguments.index("-m") + 1]
        return _module_problem(module, commands.root)
    return _path_problem(words, commands.root)


def _module_problem(module: str, root: Path) -> str:
    """Modules of the project must exist; others (pip, venv, pytest) are not ours."""
    if module.partition(".")[0] not in _PROJECT_FOLDERS:
        return ""
    base = root / module.replace(".", "/")
    is_runnable = base.with_suffix(".py").is_file() or (base / "__main__.py").is_file()
    return "" if is_runnable else f"python -m {module}: there is no such module to run"


def _path_problem(words: list[str], root: Path) -> str:
    for word in words:
        file_name = word.partition("::")[0]
        is_ours = "/" in file_name and file_name.removeprefix("./").partition("/")[0] in _PROJECT_FOLDERS
        if is_ours and not re.search(r"[*?<>{}$\[\]]", word) and not (root / file_name).exists():
            return f"{word}: there is no such file"
    return ""
