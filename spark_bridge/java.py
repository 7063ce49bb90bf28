"""Finds a Java that PySpark can run on, before PySpark is asked to start one.

PySpark's own message for a missing Java is a failed shell script. For a Java that is too old it is a
class-version error from inside the JVM. This module turns both into one sentence with the command that repairs
it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from spark_bridge.errors import JavaMissingError

# Spark 4 runs on Java 17 and newer (Spark documentation, "Downloading").
MINIMUM_JAVA_MAJOR = 17
_VERSION_PATTERN = re.compile(r'version "(?P<version>[^"]+)"')


@dataclass(frozen=True)
class JavaRuntime:
    """A usable Java: home directory (None when only the executable is on the PATH) and major version."""

    home: str | None
    executable: str
    major: int


def parse_java_major(version_output: str) -> int | None:
    """Reads the major version from the output of `java -version`; None when it contains no version.

    Java 8 and older call themselves `1.8`, newer ones `17.0.15` or `21-ea`.
    """
    match = _VERSION_PATTERN.search(version_output)
    if match is None:
        return None
    numbers = [int(part) for part in re.findall(r"\d+", match["version"])]
    if not numbers:
        return None
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]


def find_java(environment: Mapping[str, str] | None = None) -> JavaRuntime:
    """Finds Java 17 or newer: the one of `JAVA_HOME`, when that is set, or else one on the PATH.

    A `JAVA_HOME` is intended, so a wrong one is not replaced: PySpark would start the Java that it names.

    Raises:
        JavaMissingError: no Java found, or only versions that are too old; the message lists the searched
            places.
    """
    variables = os.environ if environment is None else environment
    java_home = variables.get("JAVA_HOME")
    if java_home:
        return _java_in(java_home)
    looked_at = ["JAVA_HOME (not set)"]
    on_path = shutil.which("java", path=variables.get("PATH", ""))
    if on_path is None:
        looked_at.append("PATH (no java)")
    else:
        major = _major_of(on_path)
        if major is not None and major >= MINIMUM_JAVA_MAJOR:
            return JavaRuntime(_home_of(on_path), on_path, major)
        looked_at.append(f"{on_path} ({_describe(major)})")
    raise JavaMissingError(
        f"Spark needs Java {MINIMUM_JAVA_MAJOR} or newer and none was found; looked at: "
        f"{'; '.join(looked_at)}. Install one (Debian, Ubuntu: apt-get install openjdk-17-jre-headless; "
        "macOS: brew install openjdk@17) or point JAVA_HOME at it."
    )


def _java_in(java_home: str) -> JavaRuntime:
    executable = os.path.join(java_home, "bin", "java")
    major = _major_of(executable)
    if major is not None and major >= MINIMUM_JAVA_MAJOR:
        return JavaRuntime(java_home, executable, major)
    if not os.path.isdir(java_home):
        why = "there is no such directory"
    elif not os.path.isfile(executable):
        why = f"there is no {executable}"
    else:
        why = f"{executable} {_describe(major)}"
    raise JavaMissingError(
        f"JAVA_HOME is {java_home}, but {why}; Spark needs Java {MINIMUM_JAVA_MAJOR} or newer. Set JAVA_HOME to the"
        " directory of one, or unset it to use the java on the PATH."
    )


def _major_of(executable: str) -> int | None:
    """Asks one `java` for its version; None when it cannot be run or does not answer as Java does."""
    try:
        answer = subprocess.run(
            [executable, "-version"], capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    # Java prints its version on stderr, some builds on stdout.
    return parse_java_major(answer.stderr + answer.stdout) if answer.returncode == 0 else None


def _home_of(executable: str) -> str | None:
    """The home directory of a `java` on the PATH, through links such as Debian's /etc/alternatives."""
    binary_dir = os.path.dirname(os.path.realpath(executable))
    home = os.path.dirname(binary_dir)
    return home if os.path.isfile(os.path.join(home, "bin", "java")) else None


def _describe(major: int | None) -> str:
    return "does not run" if major is None else f"is Java {major}"
