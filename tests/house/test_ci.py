"""``.ci/run`` on a machine made of shell scripts: it installs what is missing, as root on Debian, and then checks."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.house.project import ROOT

SERVERS = "/usr/lib/postgresql"
"""Where Debian puts the programs of PostgreSQL, outside PATH."""
CHECKS = ["make lint CI=true", "make env CI=true", "make test CI=true"]

pytestmark = pytest.mark.skipif(shutil.which("bash") is None or os.name != "posix", reason="needs bash")


class Machine:
    """The tools that it has besides bash, and the calls to them, in order."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.tools = directory / "bin"
        self.servers = directory / "postgresql"
        self.calls = directory / "calls"
        self.tools.mkdir()
        for tool in ("bash", "dirname"):
            found = shutil.which(tool)
            assert found is not None
            (self.tools / tool).symlink_to(found)
        (directory / ".ci").mkdir()
        text = (ROOT / ".ci/run").read_text()
        assert text.count(SERVERS) == 1
        (directory / ".ci/run").write_text(text.replace(SERVERS, str(self.servers)))

    def has(self, name: str, body: str = "", code: int = 0) -> None:
        """A tool that notes its call, then runs ``body``, and ends with this exit code."""
        told = f'echo "{name} $* CI=$CI" >> {self.calls}\n' if name in ("make", "apt-get") else ""
        path = self.tools / name
        path.write_text(f"#!/bin/bash\n{told}{body}\nexit {code}\n")
        path.chmod(0o755)

    def has_server(self, version: str = "15") -> None:
        """PostgreSQL, as Debian installs it."""
        programs = self.servers / version / "bin"
        programs.mkdir(parents=True)
        (programs / "initdb").touch()

    def run(self, user: int = 0) -> tuple[int, str]:
        self.has("id", f"echo {user}")
        done = subprocess.run(
            [self.tools / "bash", str(self.directory / ".ci/run")],
            env={"PATH": str(self.tools)},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def called(self) -> list[str]:
        return [line.replace("--no-print-directory ", "") for line in self.calls.read_text().splitlines()]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Debian with make, Python and a browser, without a server."""
    machine = Machine(tmp_path)
    for tool in ("make", "python3.11", "apt-get", "chromium"):
        machine.has(tool)
    return machine


def test_a_server_that_is_missing_is_installed(machine: Machine) -> None:
    """As root, before anything is checked: the tests that need it may not be skipped."""
    assert machine.run() == (0, "Installing postgresql ...\n")
    update, install, *checks = machine.called()
    assert update == "apt-get update -qq CI=true"
    assert install == "apt-get install -y -qq --no-install-recommends postgresql CI=true"
    assert checks == CHECKS


def test_a_server_that_is_there_is_used(machine: Machine) -> None:
    """A server of any version is used."""
    machine.has_server("17")
    assert machine.run() == (0, "")
    assert machine.called() == CHECKS


def test_a_server_in_path_is_used(machine: Machine) -> None:
    """Other systems have it there."""
    machine.has("initdb")
    assert machine.run() == (0, "")
    assert machine.called() == CHECKS


def test_everything_that_is_missing_is_installed_at_once(machine: Machine) -> None:
    """A bare machine: the newest Python that the distribution has, make, a server and a browser."""
    (machine.tools / "chromium").unlink()
    (machine.tools / "python3.11").unlink()
    (machine.tools / "make").unlink()
    # As apt-get would.
    made = f"#!/bin/bash\\necho \\\"make \\$* CI=\\$CI\\\" >> {machine.calls}\\n"
    make = machine.tools / "make"
    chmod = shutil.which("chmod")
    machine.has("apt-get", f'[ "$1" = update ] || {{ printf "{made}" > {make}; {chmod} +x {make}; }}')
    assert machine.run() == (0, "Installing make python3 python3-venv postgresql chromium ...\n")
    assert machine.called()[1].startswith("apt-get install -y -qq --no-install-recommends make python3 python3-venv")
    assert machine.called()[2:] == CHECKS


def test_who_is_not_root_installs_nothing(machine: Machine) -> None:
    """The checks go on, and the tests that need a server fail with the advice to install one."""
    assert machine.run(user=1000) == (0, "")
    assert machine.called() == CHECKS


def test_an_installation_that_fails_is_told_and_the_checks_go_on(machine: Machine) -> None:
    """With the words of apt-get: most of the tests need no server."""
    machine.has("apt-get", 'echo "E: no network" >&2', code=100)
    code, said = machine.run()
    assert code == 0
    assert said.startswith("Installing postgresql ...\nE: no network\nThat failed.")
    assert machine.called() == ["apt-get update -qq CI=true", *CHECKS]


def test_checks_that_fail_make_it_fail(machine: Machine) -> None:
    """After a failed check the tests do not run."""
    machine.has_server()
    machine.has("make", '[ "$2" != lint ]', code=0)
    (machine.tools / "make").write_text((machine.tools / "make").read_text().replace("exit 0", "exit $?"))
    code, _ = machine.run()
    assert code == 1
    assert machine.called() == CHECKS[:1]
