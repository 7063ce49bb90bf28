"""Job files: a Python file that defines ``job``, a function that builds an :class:`engine.Job` or a job itself.

The file's directory is *appended* to Python's search path. So modules beside it can be imported, but a folder beside it
with the name of one of our packages (``operators``) does not hide ours. If the file belongs to a package, the directory
of that package follows, so that the file may import its neighbours by their full names.
"""

from __future__ import annotations

import inspect
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from engine.elements.errors import JobFileError, WeirError
from engine.elements.suggestions import nearest

if TYPE_CHECKING:
    from engine.explore.run import Expected
    from engine.graph.job import Job

_TEMPLATE = """\
  fix: define a function named job that returns the job, for instance

    from engine import CollectionSource, Job

    def job() -> Job:
        job = Job("example")
        job.source(CollectionSource([1, 2, 3])).map(lambda value: value + 1).print()
        return job"""


@dataclass(frozen=True, slots=True)
class LoadedJob:
    """A job, the absolute path of the file it comes from, and the parameters it was built with.

    ``content``: of the file, as it was loaded; ``scenario``: the file's ``SCENARIO`` unchanged, see
    :mod:`engine.explore.cases.scenario`; empty without one.
    """

    job: Job
    path: str
    params: Mapping[str, str]
    content: bytes
    scenario: object = field(default_factory=dict)
    expected: Expected | None = None
    """Of the file, if it was loaded for a search."""


def load_job(
    path: str, params: Mapping[str, str], parallelism: int | None = None, max_parallelism: int | None = None
) -> LoadedJob:
    """Load a job file and build its job.

    ``params`` are passed to the function as strings. ``parallelism`` replaces the default parallelism of the
    job, not that of operators that name their own, and is also passed to a function that has a parameter of that name.
    ``max_parallelism`` replaces that default of the job.

    Raises :class:`JobFileError` when the file cannot be loaded or defines no job; errors of the graph are
    :class:`engine.elements.errors.JobGraphError`.
    """
    from engine.graph.job import parallelism_override

    absolute = _absolute(path)
    with parallelism_override(parallelism, max_parallelism):
        module, content = _load(absolute)
        job = _build(module, absolute, params, parallelism)
        return LoadedJob(job, absolute, dict(params), content, getattr(module, "SCENARIO", {}))


def load_maker(path: str) -> tuple[Callable[..., Job], bytes]:
    """Load a job file once, for many runs of its job, here and on executors: the function travels without the file.
    ``make(params, parallelism=None, max_parallelism=None)`` builds the job as :func:`load_job` does. Also returns the
    content of the file.

    Raises what :func:`load_job` raises, and so does the function.
    """
    from engine.graph.job import Job, parallelism_override

    absolute = _absolute(path)
    module, content = _load(absolute)

    def make(params: Mapping[str, str], parallelism: int | None = None, max_parallelism: int | None = None) -> Job:
        with parallelism_override(parallelism, max_parallelism):
            loaded = module
            if isinstance(getattr(module, "job", None), Job) and (parallelism, max_parallelism) != (None, None):
                # A job that is a variable gets them only while its file is loaded.
                loaded, _ = _load(absolute)
            return _build(loaded, absolute, params, parallelism)

    return make, content


def load_builder(
    path: str, params: Mapping[str, str], check: Callable[[bytes], None] | None = None
) -> tuple[Callable[[int | None], Job], LoadedJob]:
    """Load a job file once, for a search that builds its job with several parallelisms; also returns the job with its
    own. Parameters in the file's ``SCENARIO`` hold unless ``params`` override them. ``check`` refuses
    content before any of it is run.

    Raises what :func:`load_job` and ``check`` raise.
    """
    from engine.explore.cases import search_params
    from engine.graph.job import parallelism_override

    absolute = _absolute(path)
    module, content = _load(absolute, check)
    scenario = getattr(module, "SCENARIO", {})
    params = {**search_params(scenario, absolute), **params}

    def build(parallelism: int | None) -> Job:
        with parallelism_override(parallelism):
            return _build(module, absolute, params, parallelism)

    return build, LoadedJob(build(None), absolute, params, content, scenario, _expected(module, absolute, params))


def _absolute(path: str) -> str:
    file = Path(path)
    if not file.exists():
        parent = file.parent
        siblings = [one.name for one in sorted(parent.glob("*.py"))] if parent.is_dir() else []
        close = nearest(file.name, siblings)
        hint = f"did you mean {parent / close}?" if close else "check the path; it is relative to where you are"
        raise JobFileError(f"{path}: there is no such job file\n  fix: {hint}")
    if not file.is_file():
        raise JobFileError(f"{path}: a job file is a Python file, and this is a directory\n  fix: name the file in it")
    return str(file.resolve())


def _load(path: str, check: Callable[[bytes], None] | None = None) -> tuple[ModuleType, bytes]:
    """The module of a file, and the content that it was made from."""
    directory, name = os.path.dirname(path), f"weir_job_{Path(path).stem}"
    for place in (directory, _root_of_package(directory)):
        if place not in sys.path:
            sys.path.append(place)
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise JobFileError(f"{path}: a job file is a Python file\n  fix: give it a name that ends in .py")
    module = module_from_spec(spec)
    # Classes of the job file, dataclasses among them, find their module by name.
    sys.modules[name] = module
    try:
        # Not by the loader: it would use a compiled file with the same second and size instead of the content.
        content = Path(path).read_bytes()
        if check is not None:
            check(content)
        exec(compile(content, path, "exec", dont_inherit=True), vars(module))
    except WeirError:
        raise
    except SyntaxError as error:
        raise JobFileError(f"{error.filename}:{error.lineno}: the job file is no valid Python: {error.msg}") from error
    except ModuleNotFoundError as error:
        raise JobFileError(
            f"{_where(error, path)}: the job file imports {error.name!r}, which cannot be found\n"
            f"  fix: install it, or put it beside the job file, in {directory}"
        ) from error
    except (Exception, SystemExit) as error:
        raise JobFileError(
            f"{_where(error, path)}: loading the job file raised {type(error).__name__}: {error}\n"
            "  fix the file: loading it must only define the job"
        ) from error
    return module, content


def _root_of_package(directory: str) -> str:
    """The directory that contains the outermost package of ``directory``; itself when it is not a package."""
    while os.path.exists(os.path.join(directory, "__init__.py")):
        directory = os.path.dirname(directory)
    return directory


def _where(error: BaseException, path: str) -> str:
    """The last line of the job file that was running."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    return f"{path}:{lines[-1]}" if lines else path


def _build(module: ModuleType, path: str, params: Mapping[str, str], parallelism: int | None) -> Job:
    from engine.graph.job import Job

    defined = getattr(module, "job", None)
    if isinstance(defined, Job):
        if params:
            raise JobFileError(
                f"{path}: --param {next(iter(params))}: the file's job is a variable and takes no parameters\n"
                "  fix: turn it into a function, def job(name): ..., or leave --param out"
            )
        return defined
    if defined is None or not callable(defined):
        raise JobFileError(f"{path}: {_no_job(module, defined)}\n{_TEMPLATE}")
    built = _call(defined, path, params, parallelism)
    if not isinstance(built, Job):
        raise JobFileError(
            f"{path}: job() returned {type(built).__name__} instead of an engine.Job\n"
            "  fix: end the function with `return job`"
        )
    return built


def _expected(module: ModuleType, path: str, params: Mapping[str, str]) -> Expected | None:
    """The file's ``expected()``, with those parameters of the job that it names."""
    from engine.explore.run import Expected

    defined = getattr(module, "expected", None)
    if defined is None:
        return None
    if not callable(defined):
        raise JobFileError(
            f"{path}: its `expected` is a {type(defined).__name__}, and must be a function that returns rows by sink"
        )
    named = _parameters(defined)
    given = {name: value for name, value in params.items() if name in named}
    for name, one in named.items():
        if one.default is one.empty and one.kind is not one.VAR_KEYWORD and name not in (*given, "inputs"):
            raise JobFileError(
                f"{path}: expected() needs {name!r}, which is neither `inputs` nor a parameter that job() was given\n"
                f"  fix: give {name!r} a default, or --param {name}=VALUE"
            )
    return Expected(partial(defined, **given), "inputs" in named, path)


def _no_job(module: ModuleType, defined: object) -> str:
    from engine.graph.job import Job

    if defined is not None:
        return f"its `job` is a {type(defined).__name__}, neither a function nor an engine.Job"
    others = [name for name, value in vars(module).items() if isinstance(value, Job)]
    if len(others) == 1:
        return f"it defines no `job`; rename {others[0]!r} to `job`"
    if others:
        return f"it defines several jobs ({', '.join(others)}) and none is named `job`; name the one to run so"
    if callable(getattr(module, "main", None)):
        return "it defines no `job`: it is a program that runs its jobs itself, so start it with python"
    return "it defines no `job`"


def _call(function: Callable[..., object], path: str, params: Mapping[str, str], parallelism: int | None) -> object:
    arguments: dict[str, Any] = dict(params)
    accepted = _parameters(function)
    open_ended = any(one.kind is one.VAR_KEYWORD for one in accepted.values())
    named = {name: one for name, one in accepted.items() if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)}
    if parallelism is not None and "parallelism" in named:
        arguments.setdefault("parallelism", parallelism)
    for name in arguments:
        if name not in named and not open_ended:
            close = nearest(name, named)
            hint = f"did you mean {close!r}?" if close else f"it takes: {', '.join(named) or 'none'}"
            raise JobFileError(f"{path}: job() has no parameter {name!r}\n  fix: {hint}")
    for name, one in named.items():
        if one.default is one.empty and name not in arguments:
            raise JobFileError(f"{path}: job() needs parameter {name!r}\n  fix: give it with --param {name}=VALUE")
    try:
        return function(**arguments)
    except WeirError:
        raise
    except Exception as error:
        raise JobFileError(
            f"{_where(error, path)}: building the job raised {type(error).__name__}: {error}\n"
            "  fix the file, or the parameters given with --param"
        ) from error


def _parameters(function: Callable[..., object]) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(function).parameters
