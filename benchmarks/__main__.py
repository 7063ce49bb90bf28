"""``python -m benchmarks``: run the benchmarks and print their table."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import click

from benchmarks import (
    checkpoint_cost,
    columnar,
    explore,
    file_sinks,
    files,
    heap,
    heap_values,
    kernel,
    log,
    lsm,
    pages,
    scale,
    spark,
    spark_batches,
    studies,
    table,
    w1,
    w2,
)  # fmt: skip
from benchmarks.measure import CLOCKS, Result, use_clock

BENCHMARKS: dict[str, Callable[[bool], list[Result]]] = {
    "w1": w1.single,
    "parallel": w1.parallel,
    "w2": w2.measure,
    "columnar": columnar.measure,
    "checkpoints": checkpoint_cost.measure,
    "heap": heap.measure,
    "heap-values": heap_values.measure,
    "kernel": kernel.measure,
    "files": files.measure,
    "file-sinks": file_sinks.measure,
    "log": log.measure,
    "lsm": lsm.measure,
    "pages": pages.measure,
    "scale": scale.measure,
    "explore": explore.measure,
    "studies": studies.measure,
    "spark": spark.measure,
    "spark-batches": spark_batches.measure,
}
"""Every benchmark takes whether it should be quick and returns the lines of its table."""


@click.command(epilog="Goals are shown, never enforced: the exit code is 0 whatever the speed.")
@click.argument("names", nargs=-1, type=click.Choice(list(BENCHMARKS)), metavar=f"[{'|'.join(BENCHMARKS)}]...")
@click.option("--quick", is_flag=True, help="Small inputs, few rounds, no goals: seconds, rough numbers.")
@click.option(
    "--json",
    "json_file",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Also write every sample to this file.",
)
@click.option(
    "--clock",
    type=click.Choice(list(CLOCKS)),
    default="wall",
    show_default=True,
    help="cpu leaves out what a busy machine and a slow disk add.",
)
def main(names: Sequence[str], quick: bool, json_file: Path | None, clock: str) -> None:
    """Measure Weir beside programs that do the same, in one run; without NAMES all benchmarks."""
    use_clock(clock)
    about = {**table.machine(), "clock": clock, "inputs": "small" if quick else "full"}
    click.echo(", ".join(f"{what}: {value}" for what, value in about.items()))
    results: dict[str, list[Result]] = {}
    for name in dict.fromkeys(names or BENCHMARKS):
        click.echo(f"{name} ...", err=True)
        start = time.perf_counter()
        measured = BENCHMARKS[name](quick)
        # Goals are set for full inputs: on small ones the first touch of each key and the checkpoints weigh ten times.
        results[name] = [replace(result, goal=None) for result in measured] if quick else measured
        click.echo(f"{name}: {time.perf_counter() - start:.0f} s", err=True)
    click.echo(table.render([result for group in results.values() for result in group]))
    if json_file is not None:
        text = json.dumps(table.as_json(results, quick=quick, clock=clock), indent=2, ensure_ascii=False)
        json_file.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
