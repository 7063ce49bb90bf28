"""Job files: loaded as the user means them, or refused with the mistake and its fix."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.cli.settings import load_job, load_maker
from engine.elements.errors import JobFileError, JobGraphError
from engine.graph.job import Job

HEAD = "from engine import CollectionSource, Job\n"
CHAIN = "    job.source(CollectionSource([1]), name='numbers').print()\n    return job\n"


@pytest.fixture(autouse=True)
def clean_imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith(("weir_job_", "helper_of_")):
            del sys.modules[name]


def write(directory: Path, text: str) -> str:
    path = directory / "some_job.py"
    path.write_text(text)
    return str(path)


def refusal(path: str, **params: str) -> str:
    """The message with which a job file is refused."""
    with pytest.raises(JobFileError) as error:
        load_job(path, params)
    return str(error.value)


def test_a_function_gets_its_parameters_as_text(tmp_path: Path) -> None:
    """Those given, as they were typed; the others have their defaults."""
    text = "def job(name, other='x'):\n    job = Job(name + other + type(name).__name__)\n"
    path = write(tmp_path, HEAD + text + CHAIN)
    loaded = load_job(path, {"name": "5"})

    assert loaded.job.name == "5xstr"
    assert loaded.path == path
    assert loaded.params == {"name": "5"}


def test_a_function_may_take_any_parameters(tmp_path: Path) -> None:
    """`**params` takes every name."""
    path = write(tmp_path, HEAD + "def job(**params):\n    job = Job(params['a'] + params['b'])\n" + CHAIN)

    assert load_job(path, {"a": "x", "b": "y"}).job.name == "xy"


def test_a_variable_is_a_job_too(tmp_path: Path) -> None:
    """Without parameters, for there is no function to take them."""
    path = write(tmp_path, HEAD + "job = Job('plain')\n")

    assert load_job(path, {}).job.name == "plain"
    assert "takes no parameters" in refusal(path, lines="3")


def test_parallelism_replaces_the_jobs_default(tmp_path: Path) -> None:
    """It replaces each parallelism but those of operators with their own number; afterwards everything is as before."""
    free = write(tmp_path, HEAD + "def job():\n    return Job('free')\n")
    assert load_job(free, {}, parallelism=4).job.parallelism == 4
    assert Job("later").parallelism == 1

    fixed = write(tmp_path, HEAD + "def job():\n    return Job('fixed', parallelism=2)\n")
    assert load_job(fixed, {}, parallelism=4).job.parallelism == 4
    assert load_job(fixed, {}).job.parallelism == 2

    asking = write(tmp_path, HEAD + "def job(parallelism=1):\n    return Job(f'p{parallelism + 1}')\n")
    assert load_job(asking, {}, parallelism=4).job.name == "p5"


def test_a_file_is_loaded_once_for_many_jobs(tmp_path: Path) -> None:
    """Each has its own parameters and parallelism, as if it were loaded anew; a variable gets it only so."""
    path = write(tmp_path, HEAD + "def job(name):\n    return Job(name, parallelism=2)\n")
    make, content = load_maker(path)
    variable, _ = load_maker(write(tmp_path, HEAD + "job = Job('fixed', parallelism=2)\n"))
    assert content == (HEAD + "def job(name):\n    return Job(name, parallelism=2)\n").encode()
    assert [variable({}, *given).parallelism for given in ((), (4,))] == [2, 4]
    os.unlink(path)
    assert [make({"name": name}, *given).parallelism for name, given in (("a", ()), ("b", (4,)))] == [2, 4]
    assert make({"name": "b"}, None, 8).max_parallelism == 8


def test_default_parallelism_is_put_back_after_a_failure(tmp_path: Path) -> None:
    """A job file that fails leaves no trace in the process."""
    with pytest.raises(JobFileError):
        load_job(write(tmp_path, "1 / 0\n"), {}, parallelism=4)

    assert Job("later").parallelism == 1


def test_helpers_beside_the_job_can_be_imported(tmp_path: Path) -> None:
    """Its directory is searched last, so that it does not hide any of our packages."""
    (tmp_path / "helper_of_job.py").write_text("NAME = 'helped'\n")
    (tmp_path / "operators").mkdir()
    (tmp_path / "operators/__init__.py").write_text("raise RuntimeError('the wrong operators')\n")
    path = write(tmp_path, HEAD + "from helper_of_job import NAME\ndef job():\n    job = Job(NAME)\n" + CHAIN)

    assert load_job(path, {}).job.name == "helped"
    assert sys.path[-1] == str(tmp_path)


def test_a_job_file_of_a_package_can_import_its_neighbours(tmp_path: Path) -> None:
    """By their full names, as ``python -m`` does: the directory of the outermost package is searched, too."""
    package = tmp_path / "helper_of_jobs" / "inner"
    package.mkdir(parents=True)
    for directory in (package, package.parent):
        (directory / "__init__.py").touch()
    (package / "names.py").write_text("NAME = 'neighbour'\n")
    text = HEAD + "from helper_of_jobs.inner.names import NAME\ndef job():\n    job = Job(NAME)\n" + CHAIN

    assert load_job(write(package, text), {}).job.name == "neighbour"
    assert sys.path[-2:] == [str(package), str(tmp_path)]


def test_the_file_is_what_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the compiled code of an earlier version, which Python would take at the same second and size."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = tmp_path / "changing.py"
    for name in ("one", "two"):
        path.write_text(f"from engine import Job\n\njob = Job({name!r})\n")
        os.utime(path, (10**9, 10**9))
        loaded = load_job(str(path), {})
        assert (loaded.job.name, loaded.content) == (name, path.read_bytes())


def test_dataclasses_of_the_job_file_find_their_module(tmp_path: Path) -> None:
    """Tools that look up a module by name (dataclasses, pickling tools, type hints) work."""
    text = "from __future__ import annotations\nfrom dataclasses import dataclass\n" + HEAD
    text += "@dataclass\nclass Point:\n    x: int\ndef job():\n    return Job(str(Point(3).x))\n"

    assert load_job(write(tmp_path, text), {}).job.name == "3"


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("x = 1\n", ["defines no `job`", "def job() -> Job:"]),
        ("def main():\n    pass\n", ["a program that runs its jobs itself, so start it with python", "def job()"]),
        (HEAD + "stream = Job('a')\n", ["rename 'stream' to `job`"]),
        (HEAD + "a = Job('a')\nb = Job('b')\n", ["several jobs (a, b)"]),
        ("job = 3\n", ["its `job` is a int"]),
        ("def job():\n    return 3\n", ["returned int", "return job"]),
        ("def job(:\n", ["some_job.py:1", "no valid Python"]),
        ("import os\nimport nowhere_to_be_found\n", ["some_job.py:2", "nowhere_to_be_found", "install it"]),
        ("x = 1\n\nx / 0\n", ["some_job.py:3", "ZeroDivisionError"]),
        ("import sys\nsys.exit(3)\n", ["SystemExit"]),
        ("def job():\n    return 1 / 0\n", ["some_job.py:2", "building the job raised ZeroDivisionError"]),
        ("def job(path):\n    return path\n", ["needs parameter 'path'", "--param path=VALUE"]),
    ],
)
def test_a_job_file_that_will_not_do_is_refused(tmp_path: Path, text: str, messages: list[str]) -> None:
    """Where it is, what is wrong, and what to do."""
    said = refusal(write(tmp_path, text))

    assert [message for message in messages if message not in said] == [], said


def test_parameters_the_function_does_not_have_are_refused(tmp_path: Path) -> None:
    """With the one that was probably meant, or with all there are."""
    path = write(tmp_path, HEAD + "def job(lines='3', words='4'):\n    return Job('j')\n")

    assert "did you mean 'lines'?" in refusal(path, line="3")
    assert "it takes: lines, words" in refusal(path, zebra="3")


def test_missing_files_are_refused_with_a_suggestion(tmp_path: Path) -> None:
    """A similar name beside it, a directory, a file of another kind."""
    write(tmp_path, "")
    (tmp_path / "job.txt").write_text("")

    assert "did you mean" in refusal(str(tmp_path / "some_jop.py"))
    assert "check the path" in refusal(str(tmp_path / "nothing/like/it.py"))
    assert "is a directory" in refusal(str(tmp_path))
    assert "ends in .py" in refusal(str(tmp_path / "job.txt"))


def test_errors_of_the_graph_come_through(tmp_path: Path) -> None:
    """They are not a mistake of the file, and have an exit code of their own."""
    with pytest.raises(JobGraphError):
        load_job(write(tmp_path, HEAD + "def job():\n    return Job('a/b')\n"), {})
    with pytest.raises(JobGraphError):
        load_job(write(tmp_path, HEAD + "job = Job('')\n"), {})
