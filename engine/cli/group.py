"""The command group ``weir``: finds the verbs, and turns every error into its message and exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

from engine.cli.shell import (
    EXIT_CODES,
    EXIT_INTERRUPTED,
    EXIT_TERMINATED,
    ReaderGone,
    Terminated,
    exit_code_of_failure,
    failure_text,
    flush_streams,
    no_such_verb,
    standard_streams,
    start_up_problem,
    termination,
    usage_text,
)
from engine.cli.verbs import VERBS
from engine.elements.errors import EXIT_VALID, ConfigurationError, MissingDependencyError

_HELP = """A stream-processing engine you can stop, crash, rewind and audit.

\b
Examples:
  weir run wordcount.py                         run a job in virtual time
  weir run wordcount.py --kill 'count[1]@3ms'   crash a subtask, see it recover
  weir run wordcount.py --storage state/        keep checkpoints on disk
  weir resume state/                            go on after a crash
  weir explore wordcount.py --runs 10000        break it in every way, and judge each run
  weir check wordcount.py                       every schedule and every crash of a small job
  weir replay weir2.…                           make one of those runs again
  weir shrink weir2.… --out failure/            make a failing one small, and explain it
  weir diff weir2.…                             compare it with the nearest run that passes
  weir compare counting.py --html two.html      two protocols side by side, one crash
  weir inspect state/                           look into the newest checkpoint
  weir savepoint state/                         copy it to where nothing deletes it
  weir sweep wordcount.py --seeds 20            run it with many seeds and settings
  weir report results.parquet                   show the means of a sweep
  weir advise wordcount.py --mtbf 6h            how often to take a checkpoint, how many tasks
"""


class WeirGroup(click.Group):
    """Loads verbs lazily and reports all errors in the same form."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = VERBS.get(cmd_name)
        if module is None:
            return None
        command: click.Command = import_module(module).command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The verb; the error about an unknown one names the closest known verb."""
        if not args[0].startswith("-") and args[0] not in VERBS:
            raise no_such_verb(args[0], VERBS, ctx)
        return super().resolve_command(ctx, args)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command line and exit with the code of its result."""
        with standard_streams():
            try:
                with termination():
                    code = self._exit_code(args, prog_name, complete_var, **extra)
            except ReaderGone:
                code = EXIT_VALID  # it has seen what it wanted to see
        sys.exit(code)

    def _exit_code(
        self, args: Sequence[str] | None, prog_name: str | None, complete_var: str | None, **extra: Any
    ) -> int:
        problem = start_up_problem()
        if problem is not None:
            click.echo(f"error: {problem}", err=True)
            return MissingDependencyError.exit_code
        try:
            result = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
            flush_streams()
        except click.ClickException as error:
            click.echo(usage_text(error), err=True)
            return ConfigurationError.exit_code
        except Terminated:
            click.echo("terminated", err=True)
            return EXIT_TERMINATED
        except (KeyboardInterrupt, click.Abort):
            click.echo("interrupted", err=True)
            return EXIT_INTERRUPTED
        except Exception as error:
            click.echo(failure_text(error), err=True)
            return exit_code_of_failure(error)
        return result if isinstance(result, int) else EXIT_VALID


def _version(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value and not context.resilient_parsing:
        from engine import __version__

        click.echo(f"weir {__version__}")
        context.exit(0)


@click.group(
    name="weir",
    cls=WeirGroup,
    help=_HELP,
    epilog="\b\nExit codes:\n" + "\n".join(f"  {line}" for line in EXIT_CODES.splitlines()),
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
@click.option(
    "--version", is_flag=True, expose_value=False, is_eager=True, callback=_version, help="Print the version."
)
@click.pass_context
def main(context: click.Context) -> None:
    if context.invoked_subcommand is None:
        click.echo(context.get_help() + "\n", err=True)
        raise click.UsageError(f"no verb is given; there are {', '.join(VERBS)}", context)
