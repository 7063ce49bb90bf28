"""A sweep: one study, run for each of many sets of arguments."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from functools import partial
from hashlib import blake2b
from importlib import import_module
from itertools import chain
from textwrap import dedent
from typing import Any

from engine import __version__
from engine.elements.errors import ConfigurationError, StorageError, check_whole
from engine.runtime.config import SparkCluster, parse_where
from engine.study.case_executors import Each, on_executors
from engine.study.case_grid import RESERVED, checked, describe, grid, key_of, plain
from engine.study.case_processes import DIED, FAILED, OK, Outcome, each_in_its_process
from engine.study.row_measures import measures_of
from engine.study.study_file import ResultsFile, Row, StudyIdentity
from engine.study.study_table import StudyTable

Study = Callable[..., Any]
Progress = Callable[[int, int, Row], None]
Earlier = tuple[dict[str, Any], Row, str]
"""A case that an earlier call has run, its row, and the file that has it."""


def sweep(
    study: Study,
    *,
    cases: Sequence[Mapping[str, Any]] | None = None,
    jobs: int = 1,
    on: str | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    identity: StudyIdentity | None = None,
    **values: Any,
) -> StudyTable:
    """Run ``study`` for each case, and return a table with a row for each.

    ``study``     a function that returns the result of ``job.run(...)``, a number, or numbers by name. Its result must
                  depend on its arguments alone; the first case runs twice to check it;
    ``values``    the arguments, each with one value or several; all combinations are cases: ``seed=range(20)``;
    ``cases``     the cases as dicts, instead of ``values``;
    ``jobs``      cases that run at the same time, each in a process of its own;
    ``on``        ``spark`` or ``spark=MASTER``: executors run the cases instead, as many at the same time as they have
                  cores; the rows are the same;
    ``out``       a file, ``.parquet`` or ``.jsonl``. Rows are written as cases end; cases with a row do not run again,
                  but for those whose process died, and one to see that it still gives its row;
    ``progress``  is called with the number of cases that have ended, the number of all, and the row;
    ``identity``  tells this study from others, instead of its name and its program text.

    A case that raises an error becomes a row with ``status`` ``failed`` and the error; one with more arrivals than the
    job can handle a row with ``overloaded``, one whose process dies a row with ``died``.

    Raises :class:`ConfigurationError` for cases that cannot be run, and for a study whose result changes from run to
    run, and :class:`StorageError` when ``out`` holds results of another study or version, or such that the study no
    longer gives. With ``on``, also :class:`JobFileError` when the study cannot be sent to executors, and errors of
    :mod:`spark_bridge.errors`.
    """
    check_whole("jobs", jobs)
    cluster = _cluster(on, jobs)
    if cases is not None and values:
        raise ConfigurationError(f"sweep: both cases and values of {', '.join(values)} are given; leave one out")
    everything = grid(values) if cases is None else checked(cases)
    _check_signature(study, everything[0])
    if identity is None:
        identity = identity_of(study, tuple(everything[0]), out)
    file = None if out is None else ResultsFile(out, identity)
    # The processes of the cases have the runtime already, and need not load it each.
    import_module("engine.job_runner")
    with nullcontext([]) if file is None else file as known:
        rows = {key_of({name: row[name] for name in identity.arguments}): row for row in known}
        endings = [(case, rows[key_of(case)]["status"] if key_of(case) in rows else None) for case in everything]
        # A process dies of what is no argument, such as memory that others take.
        left = [case for case, ending in endings if ending in (None, DIED)]
        done = len(everything) - len(left)
        where = "" if file is None else file.place
        earlier = next(((case, rows[key_of(case)], where) for case, ending in endings if ending == OK), None)
        # Closed at once when the sweep ends early: its tasks would run on.
        with closing(_outcomes(study, identity.study, left, jobs, cluster, earlier)) as outcomes:
            for case, outcome in outcomes:
                row = rows[key_of(case)] = _row(case, *outcome)
                done += 1
                if file is not None:
                    file.add(row)
                if progress is not None:
                    progress(done, len(everything), row)
        if file is not None:
            file.finish(_in_order(everything, rows))
    found = _in_order(everything, rows)[: len(everything)]
    return StudyTable(identity.study, tuple(everything[0]), found, lambda number: study(**everything[number]))


def _cluster(on: object, jobs: int) -> SparkCluster | None:
    """Where the cases run, ``None`` = here. Raises what is wrong with it, as far as this machine can tell."""
    if on is not None and not isinstance(on, str):
        raise ConfigurationError(f"sweep: on is {on!r} of type {type(on).__name__}; write on='spark'")
    cluster = parse_where(on)
    if cluster is not None:
        if jobs != 1:
            raise ConfigurationError(
                f"sweep: jobs={jobs} and on={on!r} exclude each other: on Spark all cores of executors run cases; leave"
                " one of them out"
            )
        from spark_bridge.pipeline import check_installed

        check_installed()
    return cluster


def _in_order(cases: Sequence[Mapping[str, Any]], rows: Mapping[str, Row]) -> list[Row]:
    """The rows of these cases, then those of cases that only the file has."""
    keys = dict.fromkeys(map(key_of, cases))
    return [*(rows[key] for key in keys), *(row for key, row in rows.items() if key not in keys)]


def _row(case: Mapping[str, Any], measures: Mapping[str, Any] | None, failure: tuple[str, str] | None) -> Row:
    if failure is not None or measures is None:
        status, error = failure or (FAILED, "")
        return {**plain(case), "status": status, "error": error}
    return {**plain(case), "status": OK, "error": None, **measures}


def _check_signature(study: Study, case: Mapping[str, Any]) -> None:
    try:
        inspect.signature(study).bind(**case)
    except TypeError as error:
        raise ConfigurationError(
            f"sweep: study {name_of(study)!r} does not take these arguments ({describe(case)}): {error}"
        ) from None


def _outcomes(
    study: Study,
    name: str,
    cases: Sequence[dict[str, Any]],
    jobs: int,
    cluster: SparkCluster | None,
    earlier: Earlier | None,
) -> Generator[tuple[dict[str, Any], Outcome], None, None]:
    """The outcome of each case, as they end. The first one runs twice: a study whose result is decided by something
    else than its arguments, such as the clock, is refused. With executors it runs once here and once there. If there
    are rows, one of their cases runs again instead: what its function calls or reads may have changed since."""
    if not cases:
        return
    run, first = partial(_measured, study), cases[0]
    here: Each[Mapping[str, Any]] = partial(each_in_its_process, run, jobs=jobs)
    place: AbstractContextManager[Each[Mapping[str, Any]]] = nullcontext(here)
    if cluster is not None:
        place = on_executors(run, cluster)
    with place as each:
        if earlier is not None:
            (_, again), (_, one) = sorted(each([earlier[0], first]))
            _check_still(name, earlier, again)
        else:
            (_, one), (_, other) = each([first, first]) if cluster is None else chain(here([first]), each([first]))
            if json.dumps(one) != json.dumps(other):
                raise _not_determined(name, first, one, other, cluster)
        yield first, one
        for number, outcome in each(cases[1:]):
            yield cases[number + 1], outcome


def _measured(study: Study, case: Mapping[str, Any]) -> Any:
    return measures_of(study(**case), (*case, *RESERVED))


def _not_determined(
    study: str, case: Mapping[str, Any], one: Outcome, other: Outcome, cluster: SparkCluster | None
) -> ConfigurationError:
    first, second = ((outcome[0] or {"error": outcome[1]}) for outcome in (one, other))
    name = next(name for name in {**first, **second} if json.dumps(first.get(name)) != json.dumps(second.get(name)))
    where, there = "", ""
    if cluster is not None:
        where, there = ", here and on an executor", ", and put the files that it reads where executors find them, too"
    return ConfigurationError(
        f"sweep: study {study!r} is not determined by its arguments: run twice with {describe(case)}{where},"
        f" it gave {name} = {first.get(name)!r} and {second.get(name)!r}; hand what it draws or reads from outside to"
        f" it as an argument, such as a seed{there}"
    )


def _check_still(study: str, earlier: Earlier, outcome: Outcome) -> None:
    """Raises :class:`StorageError` when a case no longer gives the row that it had."""
    case, row, path = earlier
    measures, failure = outcome
    if failure is not None:
        if failure[0] == DIED:
            return
        told = f"now it ends with {failure[1]}"
    else:
        # A column of a file may hold 1 as 1.0.
        differ = (name for name in measures if key_of({name: measures[name]}) != key_of({name: row.get(name)}))
        name = next(differ, None)
        if name is None:
            return
        told = f"it has {name} = {row.get(name)!r}, and now it gives {measures[name]!r}"
    raise StorageError(
        f"{path}: holds a row that study {study!r} no longer gives: with {describe(case)} {told}\n"
        "  fix: what else decides the result has changed, such as a function that the study calls or a file that it"
        " reads; give another file, or delete this one to begin again"
    )


def name_of(study: Study) -> str:
    """The name of a study."""
    return getattr(study, "__qualname__", type(study).__name__).rpartition("<locals>.")[2]


def identity_of(study: Study, arguments: tuple[str, ...], out: object, asked: str = "") -> StudyIdentity:
    """By the name of the study, its program text, and what else decides the rows. Raises :class:`ConfigurationError`
    when there is no text, and the file ``out`` needs it."""
    try:
        text = dedent(inspect.getsource(study))
    except (OSError, TypeError):
        if out is not None:
            raise ConfigurationError(
                f"sweep: the program text of study {name_of(study)!r} is not to be found, so {out} could not tell it"
                " from others; write the study as a function in a file or a notebook, or leave out= out"
            ) from None
        text = ""
    digest = blake2b((text + asked).encode(), digest_size=16).hexdigest()
    return StudyIdentity(name_of(study), digest, __version__, tuple(sorted(arguments)))
