"""The house is tidy: no real world below the faces, modules that explain themselves, no leftovers."""

from __future__ import annotations

import ast
import shutil
import subprocess
from collections.abc import Iterable

import pytest

from tests.house.determinism import Finding, check_source
from tests.house.documents import text_rules
from tests.house.project import DETERMINISTIC_ROOMS, PACKAGES, ROOT, files_under, is_skipped, python_files, relative
from tests.house.set_kinds import ProjectNames

# Files that *are* the border to the real world, with the rules they are excused from.
BORDER_FILES: dict[str, tuple[str, ...]] = {
    "state_backends/files/local.py": ("files", "process"),
    "state_backends/files/over_fsspec.py": ("files", "process", "threads"),
    "operators/databases/waiting.py": ("clock",),
}

TOP_LEVEL = frozenset((
    *PACKAGES, "tests", "benchmarks", "examples", "docs", ".ci", ".github",
    "setup.cfg", "pyproject.toml", "ruff.toml", "Makefile", ".gitignore", ".gitattributes", ".editorconfig",
    "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", "NOTICE",
))  # fmt: skip
TEXT_SUFFIXES = frozenset((".py", ".md", ".cfg", ".toml", ".yml", ".yaml", ".sh"))
TEXT_NAMES = frozenset(("Makefile", "run", ".gitignore"))


def assert_no_findings(findings: Iterable[Finding]) -> None:
    """Fail with one `file:line` message per line."""
    listed = sorted(findings)

    assert not listed, "\n" + "\n".join(map(str, listed))


def _text_files() -> list[str]:
    found = [path for path in files_under(ROOT) if path.suffix in TEXT_SUFFIXES or path.name in TEXT_NAMES]
    return [relative(path) for path in found]


def test_deterministic_rooms_let_nothing_of_the_real_world_in() -> None:
    """From the runtime down there is no clock, random number, hash, id, thread, pickle, file or set order."""
    sources = {relative(path): path.read_text("utf-8") for path in python_files(*DETERMINISTIC_ROOMS)}
    project = ProjectNames(ast.parse(source, path) for path, source in sources.items())
    findings = [
        finding
        for path, source in sources.items()
        for finding in check_source(source, path, project=project, allowed_rules=BORDER_FILES.get(path, ()))
    ]

    assert len(sources) > len(DETERMINISTIC_ROOMS), "the rooms were not found: this test looked at nothing"
    assert_no_findings(findings)


@pytest.mark.parametrize(
    ("path", "rule"), [(path, rule) for path, rules in sorted(BORDER_FILES.items()) for rule in rules]
)
def test_border_files_need_their_excuses(path: str, rule: str) -> None:
    """An excuse that excuses nothing is removed, so that the border stays as short as it is."""
    broken = {finding.rule for finding in check_source((ROOT / path).read_text("utf-8"), path)}

    assert rule in broken


def test_modules_explain_themselves_and_stay_readable() -> None:
    """Modules have a docstring, a readable length and no stubs; every test function states its claim."""
    findings: list[Finding] = []
    for path in python_files(*PACKAGES, "examples", "benchmarks", "tests", "docs"):
        name = relative(path)
        is_package_code = name.split("/")[0] != "tests"
        findings += text_rules.check_module(path.read_text("utf-8"), name, is_package_code=is_package_code)

    assert_no_findings(findings)


def test_every_package_directory_is_a_package() -> None:
    """A directory with modules has an `__init__.py`; without it the directory would not be installed."""
    directories = {path.parent for path in python_files(*PACKAGES)}
    missing = [directory for directory in directories if not (directory / "__init__.py").is_file()]

    assert sorted(map(relative, missing)) == []


def test_text_is_free_of_leftovers() -> None:
    """No file names a path of one developer's machine or carries marks of unfinished work."""
    findings: list[Finding] = []
    for name in _text_files():
        findings += text_rules.check_text((ROOT / name).read_text("utf-8"), name)

    assert_no_findings(findings)


def test_code_refers_only_to_pages_that_exist() -> None:
    """A Markdown page named in code is one of ours, so that a reader can open it."""
    pages = {path.name for path in files_under(ROOT) if path.suffix == ".md"}
    findings: list[Finding] = []
    for path in python_files(*PACKAGES, "examples", "benchmarks"):
        findings += text_rules.check_references(path.read_text("utf-8"), relative(path), pages)

    assert_no_findings(findings)


def test_top_level_holds_nothing_unexpected() -> None:
    """A file or folder beside the known ones is a leftover, or a decision to be written into this list."""
    assert sorted(_top_level_names() - TOP_LEVEL) == []


def _top_level_names() -> set[str]:
    """The names under version control; without git (an unpacked archive) the visible ones."""
    git = shutil.which("git")
    if git and (ROOT / ".git").exists():
        listed = subprocess.run([git, "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
        if listed.returncode == 0:
            return {name.split("/")[0] for name in listed.stdout.decode().split("\0") if name}
    return {entry.name for entry in ROOT.iterdir() if not is_skipped(entry)}
