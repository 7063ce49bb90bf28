"""The text rules find exactly the breaches that they promise to find."""

from __future__ import annotations

import pytest

from tests.house.documents import text_rules


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("path", "see " + "/" + "home/ann/notes.txt"),
        ("path", "`" + "/" + "root/.cache`"),
        ("unfinished", "# TO" + "DO: later"),
        ("unfinished", "# FIX" + "ME"),
    ],
)
def test_text_rules_find(rule: str, text: str) -> None:
    """Paths of one machine and marks of unfinished work are found."""
    assert [finding.rule for finding in text_rules.check_text(text, "page.md")] == [rule]


def test_text_rules_accept_ordinary_text() -> None:
    """URLs, relative paths and placeholders are not paths of a machine."""
    text = "https://example.org/home/page, docs/work/plan, $HOME/x, ~/root/x, hackathon"

    assert list(text_rules.check_text(text, "page.md")) == []


@pytest.mark.parametrize("text", ["# as told in missing-page" + ".md", "# see " + chr(0xA7) + "12"])
def test_dangling_references_are_found(text: str) -> None:
    """A page that is not in the project and a bare section number lead nowhere."""
    for source in (text + "\n", f'"""Doc.\n\n{text}\n"""\n', f'def f():\n    """{text}"""\n'):
        findings = list(text_rules.check_references(source, "a.py", {"real.md"}))

        assert [finding.rule for finding in findings] == ["dangling"]
        assert text in source.splitlines()[findings[0].line - 1]


def test_real_pages_and_names_of_outputs_are_accepted() -> None:
    """A page of the project may be named, and code may write a Markdown file under any name."""
    source = "# see docs/real.md\nwrite('summary.md')\n"

    assert list(text_rules.check_references(source, "a.py", {"real.md"})) == []


@pytest.mark.parametrize(
    ("rule", "source", "is_package_code"),
    [
        ("docstring", "x = 1\n", True),
        ("docstring", '""" """\n', True),
        ("docstring", '"""Doc."""\ndef test_a():\n    assert 1\n', False),
        ("length", '"""Doc."""\n' + "x = 1\n" * text_rules.MAX_MODULE_LINES, True),
        ("unfinished", '"""Doc."""\ndef f():\n    raise NotImplementedError\n', True),
        ("unfinished", '"""Doc."""\ndef f():\n    raise NotImplementedError("later")\n', True),
    ],
)
def test_module_rules_find(rule: str, source: str, is_package_code: bool) -> None:
    """Missing docstrings, unclaimed tests, overlong modules and stubs are found."""
    findings = text_rules.check_module(source, "a.py", is_package_code=is_package_code)

    assert [finding.rule for finding in findings] == [rule]
