"""The output of a program in a process of its own, whose hash seed is given."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.house.project import ROOT


def printed(program: str, hash_seed: str, *arguments: str) -> str:
    """The standard output of Python code that has to succeed."""
    command = [sys.executable, "-c", program, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
