"""Wrong usage: the value that an option refuses, with the closest allowed one, and the text of click's errors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from engine.elements.suggestions import nearest


class OneOf(click.Choice):  # type: ignore[type-arg] # a plain class before click 8.2
    """One of some words."""

    def __init__(self, words: Iterable[str]) -> None:
        super().__init__(list(words))

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value in self.choices:
            return value
        close = nearest(str(value), self.choices)
        hint = "" if close is None else f"; did you mean {close!r}?"
        return self.fail(f"{value!r} is none of {', '.join(self.choices)}{hint}", param, ctx)


class AtLeast(click.IntRange):
    """A whole number with a lower bound."""

    def __init__(self, least: int) -> None:
        super().__init__(min=least)
        self._least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            number = int(value)
        except ValueError:
            self.fail(f"{value!r} is no whole number; write {self._least} or more", param, ctx)
        if number < self._least:
            self.fail(f"{number} is too small; the least is {self._least}", param, ctx)
        return number


def usage_text(error: click.ClickException) -> str:
    """The mistake in the command line, and where its options are explained."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    lines = [f"error: {_what(error, context)}"]
    if context is not None:
        usage = context.get_usage().removeprefix("Usage: ")
        lines.append(f"  fix: write {' '.join(usage.split())}; {context.command_path} --help explains it")
    return "\n".join(lines)


def _what(error: click.ClickException, context: click.Context | None) -> str:
    if isinstance(error, click.NoSuchOption):
        options = [] if context is None else [name for one in context.command.get_params(context) for name in one.opts]
        return _unknown("option", error.option_name, [name for name in options if name.startswith("--")])
    if isinstance(error, click.BadParameter) and not isinstance(error, click.MissingParameter) and error.param:
        return f"{max(error.param.opts, key=len)}: {error.message}"
    text = error.format_message().rstrip(".")
    return text[:1].lower() + text[1:]


def _unknown(kind: str, typed: str, known: Iterable[str]) -> str:
    known = list(known)
    close = nearest(typed, known)
    hint = f"there are {', '.join(known)}" if close is None else f"did you mean {close}?"
    return f"there is no {kind} {typed}; {hint}"


def no_such_verb(typed: str, verbs: Iterable[str], context: click.Context) -> click.UsageError:
    """The error about an unknown verb."""
    return click.UsageError(_unknown("verb", typed, verbs), context)
