"""The pages can be followed: links lead somewhere, and the commands that they name exist."""

from __future__ import annotations

import importlib
import re
from collections.abc import Collection
from pathlib import Path

import pytest

from tests.house.determinism import Finding
from tests.house.documents import pages
from tests.house.project import ROOT, files_under


def _weir_verbs() -> Collection[str]:
    click = importlib.import_module("click")
    main = importlib.import_module("engine.cli").main
    verbs: Collection[str] = main.list_commands(click.Context(main))
    return verbs


def _make_targets() -> Collection[str]:
    return re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), flags=re.MULTILINE)


def _pages() -> list[Path]:
    return [path for path in files_under(ROOT) if path.suffix == ".md"]


def test_links_lead_somewhere() -> None:
    """Every relative link of every page names a file that exists, and a heading it has."""
    found: list[Finding] = []
    for path in _pages():
        found += pages.check_links(path.read_text("utf-8"), path, ROOT)

    assert not found, "\n" + "\n".join(map(str, found))


def test_commands_on_pages_exist() -> None:
    """Every make target, weir verb, module and project path a page tells you to type exists."""
    commands = pages.Commands(ROOT, _make_targets(), _weir_verbs)
    found: list[Finding] = []
    for path in _pages():
        found += pages.check_commands(path.read_text("utf-8"), path, commands)

    assert not found, "\n" + "\n".join(map(str, found))


@pytest.mark.parametrize(
    ("index", "beside"), [("docs/README.md", ["decisions/README.md"]), ("docs/decisions/README.md", [])]
)
def test_the_index_lists_every_page_once(index: str, beside: list[str]) -> None:
    """A page that is not listed is not found; one that is listed twice has no place."""
    folder = (ROOT / index).parent
    expected = sorted([*(path.name for path in folder.glob("*.md") if path.name != "README.md"), *beside])
    listed = re.findall(r"^(?:\| |- )\[[^\]]+\]\(([^)#]+)\)", (ROOT / index).read_text("utf-8"), flags=re.MULTILINE)

    assert sorted(link for link in listed if not link.startswith("../")) == expected


@pytest.mark.parametrize("path", sorted((ROOT / "docs").glob("*.md")), ids=lambda path: path.stem)
def test_a_page_begins_with_its_use_and_ends_with_links(path: Path) -> None:
    """Its first screen says what a reader can do after it, and shows a command to type; its end leads on."""
    lines = path.read_text("utf-8").splitlines()
    is_list = path.stem in ("README", "limits")

    assert is_list or any("After this page you can" in line for line in lines[:5])
    assert is_list or any(line.startswith("```") for line in lines[:40])
    assert re.search(r"\]\([^)]+\.md[#)]", "\n".join(lines[-6:]))


def test_the_readme_fits_two_screens() -> None:
    """Longer explanations are in the tour."""
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 110


# --- the check itself ---


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with one other page, one example and one module that can be run."""
    for folder in ("docs", "examples", "engine/deep"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "docs/other.md").write_text(
        "# First part\n\n## `weir run`: the verb\n\n## Twice\n\n## Twice\n"
    )
    (tmp_path / "examples/job.py").touch()
    (tmp_path / "engine/deep/__main__.py").touch()
    return tmp_path


def _check_links(page: str, project: Path) -> list[str]:
    path = project / "page.md"
    path.write_text(page)
    return [finding.what for finding in pages.check_links(page, path, project)]


def _check_commands(page: str, project: Path) -> list[str]:
    commands = pages.Commands(project, ("test", "demo"), lambda: ("run", "resume"))
    return [finding.what for finding in pages.check_commands(page, project / "page.md", commands)]


@pytest.mark.parametrize(
    "link",
    [
        "[a](docs/missing.md)",
        "![picture](missing.svg)",
        "[a](docs/other.md#no-such-part)",
        "[a](#nowhere)",
        '[a](docs/missing.md "with a title")',
        "[a]: docs/missing.md",
    ],
)
def test_dead_links_are_found(link: str, project: Path) -> None:
    """Missing files, missing headings and reference links without target are found."""
    assert len(_check_links(f"# Here\n\n{link}\n", project)) == 1


@pytest.mark.parametrize(
    "link",
    [
        "[a](docs/other.md)",
        "[a](docs/other.md#first-part)",
        "[a](docs/other.md#weir-run-the-verb)",
        "[a](docs/other.md#twice-1)",
        "[a](#here)",
        "[a](https://example.org/x.md#y) [b](mailto:a@example.org)",
        "`[a](missing.md)`",
        "```\n[a](missing.md)\n```",
        "[a]: docs/other.md",
    ],
)
def test_live_links_are_accepted(link: str, project: Path) -> None:
    """Files, headings as GitHub spells them, other sites and links inside code are left alone."""
    assert _check_links(f"# Here\n\n{link}\n", project) == []


@pytest.mark.parametrize(
    "text",
    [
        "```sh\nmake deploy\n```",
        "```console\n$ make -j2 test deploy\n```",
        "Type `make deploy` to deploy.",
        "```sh\nweir explode examples/job.py\n```",
        "Use `weir explode`.",
        "```sh\nA=1 .venv/bin/weir explode\n```",
        "```sh\npython -m engine.missing\n```",
        "```sh\n.venv/bin/python3.11 examples/missing.py\n```",
        "```sh\nweir run examples/missing.py --seed 1\n```",
        "```sh\ncd x && weir run ./examples/missing.py | head\n```",
        "```sh\n.ci/missing\n```",
    ],
)
def test_dead_commands_are_found(text: str, project: Path) -> None:
    """Unknown targets, verbs, modules and paths are found in shell blocks and inline code."""
    assert len(_check_commands(text, project)) == 1


@pytest.mark.parametrize(
    "text",
    [
        '```sh\nmake\nmake test ARGS="-k barrier"  # with an argument\n```',
        "```console\n$ weir run examples/job.py\nmake deploy is what it printed\n```",
        "```python\nmake = deploy\n```",
        "Some `make` and `weir` and `make-believe`.",
        "```sh\npython -m engine.deep && python -m pytest -q\npip install weirstream\n```",
        "```sh\nweir --json resume out/latest\n```",
        "```sh\nweir run examples/<your job>.py\n```",
    ],
)
def test_live_commands_are_accepted(text: str, project: Path) -> None:
    """Commands that exist, printed output and commands of other programs are left alone."""
    assert _check_commands(text, project) == []
