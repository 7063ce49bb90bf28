"""Settings of the whole test run: where Spark tests run and how hypothesis searches."""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import tempfile
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.house.collection import MADE_KERNELS, kernels_noted

# Other tests and a Spark session share the cores, so wall time has no meaning: no deadline, and no drawing is too slow.
# The default search is the same in every run, and that of `make test` (quick) is a shorter one;
# HYPOTHESIS_PROFILE=thorough searches wider and differently each time.
PATIENT: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow], "print_blob": True}
settings.register_profile("default", derandomize=True, **PATIENT)
settings.register_profile("quick", derandomize=True, max_examples=60, **PATIENT)
settings.register_profile("thorough", max_examples=2000, **PATIENT)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

# Temporary files lie in memory until the run ends, where there is room for them: a synced file takes 0.02 ms there, and
# milliseconds on a disk. No test looks at what a disk keeps: a power cut is that of the in-memory file system. TMPDIR
# names another place.
IN_MEMORY, ROOM_BYTES = "/dev/shm", 4 << 30
if "TMPDIR" not in os.environ and os.access(IN_MEMORY, os.W_OK):
    room = os.statvfs(IN_MEMORY)
    if room.f_bavail * room.f_frsize >= ROOM_BYTES and not room.f_flag & os.ST_NOEXEC:
        os.environ["TMPDIR"] = tempfile.tempdir = tempfile.mkdtemp(prefix="weir-", dir=IN_MEMORY)
        os.chmod(tempfile.tempdir, 0o711)  # the user who runs the database server passes through
        atexit.register(shutil.rmtree, tempfile.tempdir, ignore_errors=True)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect with the garbage collector off: it would take as long as the collection itself.

    Modules and tests live as long as the run, so the collector never looks through them later either; and it looks at
    what the tests make less often than Python would have it, a quarter of whose time went there. A test reads which
    modules ran a job while they were imported: that would take long, too.
    """
    gc.disable()
    try:
        with kernels_noted() as session.config.stash[MADE_KERNELS]:
            return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000)
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadgroup`, the tests of one file go to one worker too."""
    if config.getvalue("dist") != "loadgroup":
        return None
    from tests.house.distribution import FilesTogether  # only where pytest-xdist is installed

    return FilesTogether(config, log)


# First, because pytest-xdist reads the groups in the same hook.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Send every test that needs Spark to one worker.

    A session takes about ten seconds to start and there is one per process; with `--dist loadgroup` a shared
    group name keeps its tests together. A test that asks for the `spark` fixture is marked even when its
    author forgot.
    """
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) and item.get_closest_marker("spark") is None:
            item.add_marker(pytest.mark.spark)
        if item.get_closest_marker("spark") is not None:
            item.add_marker(pytest.mark.xdist_group("spark"))
