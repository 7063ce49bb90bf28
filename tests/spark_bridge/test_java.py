"""The bridge looks for Java before it starts Spark, and one sentence says what is wrong with Java."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_bridge.errors import JavaMissingError
from spark_bridge.java import find_java, parse_java_major


def fake_java(home: Path, version_line: str, *, exit_code: int = 0) -> Path:
    """Puts a `java` into `home/bin` that answers `-version` with one line on stderr."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\necho '{version_line}' >&2\nexit {exit_code}\n")
    executable.chmod(0o755)
    return executable


@pytest.mark.parametrize(
    ("printed", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21-ea" 2023-09-19', 21),
        ('java version "1.8.0_391"', 8),
        ('openjdk version "9"', 9),
        ("The operation couldn't be completed. Unable to locate a Java Runtime.", None),
        ("", None),
    ],
)
def test_version_text_is_understood(printed: str, major: int | None) -> None:
    """The major version is read from every form Java has used; text without a version gives None."""
    assert parse_java_major(printed) == major


def test_java_home_comes_first(tmp_path: Path) -> None:
    """A usable JAVA_HOME wins over a usable java on the PATH."""
    fake_java(tmp_path / "home", 'openjdk version "21.0.1"')
    fake_java(tmp_path / "path", 'openjdk version "17.0.1"')

    found = find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "path" / "bin")})

    assert (found.major, found.home) == (21, str(tmp_path / "home"))


@pytest.mark.parametrize(
    ("home", "why"),
    [
        ("old", r"old/bin/java is Java 8; Spark needs Java 17 or newer"),
        ("gone", "there is no such directory"),
        ("empty", r"there is no .*empty/bin/java"),
    ],
)
def test_a_wrong_java_home_is_an_error(tmp_path: Path, home: str, why: str) -> None:
    """It was set on purpose: a usable java on the PATH does not take its place, and the error says what is wrong."""
    fake_java(tmp_path / "old", 'java version "1.8.0_391"')
    fake_java(tmp_path / "new", 'openjdk version "17.0.1"')
    (tmp_path / "empty").mkdir()

    with pytest.raises(JavaMissingError, match=f"JAVA_HOME is .*{home}, but .*{why}.*or unset it"):
        find_java({"JAVA_HOME": str(tmp_path / home), "PATH": str(tmp_path / "new" / "bin")})


def test_java_below_17_is_refused(tmp_path: Path) -> None:
    """Java 16 is not enough; the error says which was found where, and how to install a newer one."""
    executable = fake_java(tmp_path, 'openjdk version "16.0.2"')

    with pytest.raises(JavaMissingError, match=r"Java 17 or newer.*Java 16.*apt-get install openjdk-17") as caught:
        find_java({"PATH": str(executable.parent)})

    assert str(executable) in str(caught.value)


def test_no_java_at_all(tmp_path: Path) -> None:
    """Without any java the error names both places that were searched."""
    with pytest.raises(JavaMissingError, match=r"JAVA_HOME \(not set\); PATH \(no java\)"):
        find_java({"PATH": str(tmp_path)})


def test_java_that_does_not_run_is_no_java(tmp_path: Path) -> None:
    """A java that exits with an error (macOS ships such a one) counts as none."""
    executable = fake_java(tmp_path, 'openjdk version "17.0.1"', exit_code=1)

    with pytest.raises(JavaMissingError, match="does not run"):
        find_java({"JAVA_HOME": str(tmp_path), "PATH": str(executable.parent)})
