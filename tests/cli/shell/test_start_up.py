"""Start-up notices when the four packages are not one project."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.cli.shell.start_up import PACKAGES, shadowed_packages, start_up_problem
from tests.house.project import ROOT


def version_in(directory: Path, *first_on_path: str) -> subprocess.CompletedProcess[str]:
    """`weir --version` with some directories before ours on the search path."""
    path = os.pathsep.join([*first_on_path, str(ROOT)])
    code = f"import sys; sys.path.insert(1, {str(ROOT)!r}); from engine.cli import main; main(['--version'])"
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


def test_this_checkout_is_one_project() -> None:
    """All four packages come from here."""
    assert shadowed_packages() == {}
    assert start_up_problem() is None


@pytest.mark.parametrize("package", [name for name in PACKAGES if name != "engine"])
def test_a_folder_in_front_is_named(tmp_path: Path, package: str) -> None:
    """A user's package that would be imported instead of ours ends the command, with its place and what to do."""
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").touch()
    finished = version_in(tmp_path, str(tmp_path))

    assert finished.returncode == 20, finished.stderr
    assert f"  {package}  {tmp_path}" in finished.stderr
    assert "rename that folder" in finished.stderr
    assert "Traceback" not in finished.stderr


def test_a_folder_without_init_does_not_hide_a_package(tmp_path: Path) -> None:
    """Python prefers a real package later on the path, so such a folder is harmless."""
    (tmp_path / "operators").mkdir()

    assert version_in(tmp_path, str(tmp_path)).stdout.startswith("weir 0.")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation that lacks a package is no project either."""
    monkeypatch.delitem(sys.modules, "spark_bridge", raising=False)
    monkeypatch.setattr("engine.cli.shell.start_up.find_spec", lambda name: None)

    assert shadowed_packages()["spark_bridge"] == "not found"
