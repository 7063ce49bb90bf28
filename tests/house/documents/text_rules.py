"""Rules about text and structure: every file of the project keeps to them, whatever it does.

* `path`        no absolute path of one developer's machine;
* `unfinished`  no marks of unfinished work, no `raise NotImplementedError` in the packages;
* `dangling`    comments and docstrings name only pages of this project, and no section numbers;
* `docstring`   every module says what lives there; every test function says what it claims;
* `length`      no module is longer than 700 lines.

Findings print like those of the determinism check.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Collection, Iterator

from tests.house.determinism import Finding

MAX_MODULE_LINES = 700

_MACHINE_PATH = re.compile(r"(?<![\w.~:/<>{}-])/(?:home|Users|root|work|workspace)/[\w.-]+")
_UNFINISHED = re.compile(r"\b(?:" + "|".join(("TO" + "DO", "FIX" + "ME", "X" + "XX", "HA" + "CK")) + r")\b")
_MARKDOWN_PAGE = re.compile(r"(?<![\w*{}<>])[\w./-]*\w\.md\b")
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_SECTION_NUMBER = re.compile(chr(0xA7) + r"+\s*\w")


def check_text(text: str, path: str) -> Iterator[Finding]:
    """The rules that hold for every text file."""
    for number, line in enumerate(text.splitlines(), start=1):
        if match := _MACHINE_PATH.search(line):
            yield Finding(path, number, "path", f"{match.group()} exists on one machine only")
        if match := _UNFINISHED.search(line):
            yield Finding(path, number, "unfinished", f"{match.group()}: finish it, or describe the limit")


def check_references(source: str, path: str, page_names: Collection[str]) -> Iterator[Finding]:
    """The rules for references in comments and docstrings.

    `page_names` are the base names of the project's Markdown pages.
    """
    for number, line in _prose(source):
        for match in _MARKDOWN_PAGE.finditer(line):
            if match.group().rpartition("/")[2] not in page_names:
                yield Finding(path, number, "dangling", f"{match.group()} is not a page of this project")
        if _SECTION_NUMBER.search(line):
            yield Finding(path, number, "dangling", "a section number: name the page and its heading")


def _prose(source: str) -> Iterator[tuple[int, str]]:
    """The lines of comments and docstrings with their numbers."""
    if not (_MARKDOWN_PAGE.search(source) or _SECTION_NUMBER.search(source)):
        return  # Most modules have no such text and are not taken apart.
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False):
            docstring = node.body[0]
            lines = source.splitlines()[docstring.lineno - 1 : docstring.end_lineno]
            yield from enumerate(lines, start=docstring.lineno)


def check_module(source: str, path: str, *, is_package_code: bool) -> Iterator[Finding]:
    tree = ast.parse(source, path)
    if not (ast.get_docstring(tree) or "").strip():
        yield Finding(path, 1, "docstring", "the module does not say what lives here and why")
    lines = source.count("\n")
    if lines > MAX_MODULE_LINES:
        yield Finding(path, MAX_MODULE_LINES, "length", f"{lines} lines; the limit is {MAX_MODULE_LINES}")
    yield from _stubs(source, tree, path) if is_package_code else _tests_without_claim(tree, path)


def _stubs(source: str, tree: ast.Module, path: str) -> Iterator[Finding]:
    if "NotImplementedError" not in source:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and _raised_name(node) == "NotImplementedError":
            yield Finding(path, node.lineno, "unfinished", "raise NotImplementedError: do it, or make it abstract")


def _tests_without_claim(tree: ast.Module, path: str) -> Iterator[Finding]:
    classes = (node for node in tree.body if isinstance(node, ast.ClassDef))
    for node in (node for holder in (tree, *classes) for node in holder.body):
        if not isinstance(node, ast.FunctionDef) or not node.name.startswith("test_"):
            continue
        if not ast.get_docstring(node):
            yield Finding(path, node.lineno, "docstring", f"{node.name} does not state its claim")


def _raised_name(node: ast.Raise) -> str:
    raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
    return raised.id if isinstance(raised, ast.Name) else ""
