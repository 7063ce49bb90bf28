"""Writes docs/configuration.md from the table of settings: ``python -m tests.house.documents.configuration``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from engine.cli.settings.flink_keys import KEYS, MEANINGLESS
from engine.elements.setting_fields import DURATION, Setting
from engine.runtime.config import PRESETS, SETTINGS
from tests.house.project import ROOT

PAGE = ROOT / "docs/configuration.md"

HEAD = """\
# Configuration

After this page you can set everything that decides how a job runs, by our names or with the keys of Flink.
`make docs` writes it from the table of settings in the code.

```sh
weir run examples/wordcount.py -D execution.checkpointing.interval=1ms --preset small-cluster
weir run examples/wordcount.py --set checkpoint_interval=1ms --set cost.link_latency=2ms --explain
weir run examples/wordcount.py --config flink/config.yaml --retain 3
```

A setting can be given in these ways. Each one replaces what the ways above it say:

| Way | Takes |
|---|---|
| `--preset NAME` | the costs of a [preset](#presets) |
| `--config FILE` | a YAML file, nested or flat, with our names and Flink's keys. A key that has no effect is reported |
| `-D KEY=VALUE`, `--set KEY=VALUE` | one option with two spellings, repeatable; our names and Flink's keys. A key that has no effect is an error |
| an option | its own setting |

`weir run JOB --explain` prints every setting that is not at its default, and where it came from. `weir
explore` and `weir check` take `-D`, `--set` and `--config`, too. `weir resume` takes `-D` and `--set` for
settings of state and costs. In Python they are the keywords of [`job.run`](python.md#settings), and the fields of
[`RunConfig`](../engine/runtime/config/run_config.py). The name of a field that holds a time ends in `_ns`;
its value is a whole number of virtual ns or a text.

| Value | Written as |
|---|---|
| a time | a number and a unit, one of `ns us ms s m h`: `250ms` |
| a size | a number of bytes, or `20kb`, `64mb`, `1gb` |
| no value | `none`, where the table below names a default that is not a value |

"""

GROUPS = (
    ("", "Settings of a run"),
    ("cost", "Costs"),
    ("acking", "Record acking"),
)

FLINK = """\
## Flink's keys

A key may have its current or a deprecated spelling. A value has Flink's form: a time without a unit is in ms.
{count} keys are understood. Most are in the tables above; several settings need more than one key:

| Keys | Meaning |
|---|---|
| `execution.checkpointing.mode`, `execution.checkpointing.unaligned.enabled`, `execution.checkpointing.aligned-checkpoint-timeout` | `AT_LEAST_ONCE`: mode `at-least-once`. `EXACTLY_ONCE`: `aligned`, with `unaligned.enabled` it is `unaligned`, and with a timeout above 0 `aligned-timeout` |
| `state.backend.type`, `state.changelog.enabled` | `hashmap`: `heap`; `rocksdb`: `rocksdb`; `forst`: `lsm`; with the changelog enabled: `changelog:` and that name |
| `restart-strategy.type` with the keys of the strategy | `none`, `fixed-delay`, `failure-rate` or `exponential-delay`; parts that are left out have Flink's defaults |
| `taskmanager.network.memory.buffer-debloat.enabled`, `.target`, `.period` | `debloat_target` and `debloat_period`, when enabled |
| `execution.buffer-timeout.interval` | `0`: batches of one record. Other values have no effect |
| `execution.checkpointing.externalized-checkpoint-retention` | no effect: checkpoints in a storage directory always stay |
| `execution.checkpointing.unaligned.forced` | no effect: no job needs it |

These keys of Flink have no effect, with the reason. The longest beginning counts:

| Key begins with | Why it has no effect |
|---|---|
"""

PRESET = """
## Presets

A preset gives the costs of links, storage and records. Without costs, all work of a job but its sources takes
no virtual time, and every duration in the [checkpoint table](checkpoint-table.md) is 0.

`small-cluster` has the costs of a few machines in one rack. They are round figures in the middle of what such
machines do, not measurements: a record takes 2 µs, that is 500,000 records per second and task; the network
has 1 Gbit/s and takes a quarter of a millisecond one way; storage takes 5 ms to begin a file, as an object
store nearby does, and 100 MB/s from then on.

| Setting | `small-cluster` |
|---|---|
"""

END = """
Read on: [the command line](command-line.md), [barriers](barriers.md) for the modes, [state
backends](state-backends.md), and [time and choices](time-and-choices.md) for the time that costs add up to.
"""


def page() -> str:
    """The whole page."""
    return "".join(
        [
            HEAD,
            *(line for owner, title in GROUPS for line in _group(owner, title)),
            FLINK.format(count=len(KEYS)),
            *(f"| `{beginning}` | {why} |\n" for beginning, why in sorted(MEANINGLESS.items())),
            PRESET,
            *(f"| `{name}` | {_shown(SETTINGS[name], text)} |\n" for name, text in PRESETS["small-cluster"].items()),
            END,
        ]
    )


def _group(owner: str, title: str) -> Iterator[str]:
    ours = [one for one in SETTINGS.values() if one.owner == owner]
    has_keys = any(one.about.flink for one in ours)
    yield f"## {title}\n\n"
    yield "| Setting | Option | Meaning | Default |" + " In Flink | Flink's keys |\n" * has_keys + "\n" * (not has_keys)
    yield "|---|---|---|---|" + "---|---|\n" * has_keys + "\n" * (not has_keys)
    for one in sorted(ours, key=lambda one: one.name):
        about = one.about
        meaning = " ".join(part for part in (about.text, _bounds(one)) if part)
        option = f"`--{about.option.replace('_', '-')}`" if about.option else ""
        cells = [f"`{one.name}`", option, meaning, _default(one)]
        yield _row([*cells, *_flink(one)] if has_keys else cells)
    yield "\n"


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _bounds(one: Setting) -> str:
    about = one.about
    parts = []
    if about.choices:
        parts.append(f"One of {', '.join(f'`{choice}`' for choice in about.choices)}.")
    if about.least is not None and about.most is not None:
        parts.append(f"From {about.least} to {about.most}.")
    elif about.least and not (one.kind is DURATION and about.least == 1):
        parts.append(f"At least {_shown(one, about.least)}.")
    if about.beside:
        parts.append(f"{about.beside[0].upper()}{about.beside[1:]}.")
    return " ".join(parts)


def _shown(one: Setting, value: object) -> str:
    return f"`{value if isinstance(value, str) else one.show(value)}`"


def _default(one: Setting) -> str:
    if one.default is None:
        return one.about.none
    return _shown(one, one.default) if one.show(one.default) else "none"


def _flink(one: Setting) -> tuple[str, str]:
    """Its default in Flink with the reason for ours, and its keys."""
    about = one.about
    return about.flink_default + (f": {about.why}" if about.why else ""), ", ".join(f"`{key}`" for key in about.flink)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
