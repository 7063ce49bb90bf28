"""Functions of the user that do one simple operation are carried out in C: ``lambda record: record[0]``, say.

A call of a Python function takes longer than the operation in it, and the selectors of most keys are such functions.
They are recognised by their code. The operation is the same, with the same results and errors; only the frame of the
function is missing in the traceback of an error. :func:`raised_by` brings it back.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from inspect import CO_VARARGS, CO_VARKEYWORDS
from types import CodeType, FunctionType
from typing import Any

_Make = Callable[[CodeType], Callable[..., Any]]


def _item_function(record: Any) -> Any:
    return record["item"]


def _sum_function(left: Any, right: Any) -> Any:
    return left + right


def _item_at(index: int) -> _Make:
    return lambda code: operator.itemgetter(code.co_consts[index])


def _attribute(code: CodeType) -> Callable[[Any], Any]:
    return operator.attrgetter(code.co_names[0])


def _sum(_code: CodeType) -> Callable[[Any, Any], Any]:
    return operator.add


def _same_code() -> dict[tuple[int, bytes], _Make]:
    """By the number of arguments and the code: how to make the function in C."""
    # A function has a place for its docstring among its constants, and a lambda has none.
    item_lambda = lambda record: record["item"]  # noqa: E731
    found: dict[tuple[int, bytes], _Make] = {
        (1, one.__code__.co_code): _item_at(one.__code__.co_consts.index("item"))
        for one in (item_lambda, _item_function)
    }
    attribute_lambda = lambda record: record.attribute  # noqa: E731
    found[1, attribute_lambda.__code__.co_code] = _attribute
    found[2, _sum_function.__code__.co_code] = _sum
    return found


_SAME_CODE = _same_code()


def in_c(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function in C that does the same as one that takes an item or an attribute of its only argument, or adds its
    two arguments; any other function itself."""
    if type(function) is not FunctionType:
        return function
    code = function.__code__
    make = _SAME_CODE.get((code.co_argcount, code.co_code))
    # ``lambda *record: record[0]`` has the same code.
    if make is None or code.co_kwonlyargcount or code.co_flags & (CO_VARARGS | CO_VARKEYWORDS):
        return function
    return make(code)


def raised_by(function: Callable[..., Any], arguments: tuple[Any, ...], error: Exception) -> Exception:
    """The error of a function whose equal in C has raised ``error``, with the function in its traceback."""
    try:
        function(*arguments)
    except StopIteration:
        # ``map`` has ended quietly at it, and the error tells so.
        return error
    except Exception as own:
        return own
    return error
