"""Settings beside the options: `-D` and `--set`, a file, a preset; which counts most, and where each came from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from engine.cli.settings import RunOptions, given_settings
from engine.cli.settings.given_settings import _flat
from engine.elements.errors import ConfigurationError
from engine.runtime.config import OPTIONS, CheckpointInterval, CostModel
from tests.cli.conftest import Weir
from tests.house.project import ROOT

CONFIG = Path(__file__).parent / "data/flink-config.yaml"
INTERVAL = "execution.checkpointing.interval"


def written(directory: Path, text: str) -> str:
    path = directory / "config.yaml"
    path.write_text(text)
    return str(path)


def test_a_file_counts_less_than_a_definition_and_that_less_than_an_option(tmp_path: Path) -> None:
    """So it is under each name of a setting, and a preset counts least."""
    path = written(tmp_path, f"{INTERVAL}: 5s\nretained: 3\ncost:\n  record: 7us\n  link_latency: 1us\nbatch_size: 9\n")
    given = given_settings((f"{INTERVAL}=4s", "cost.record=8us"), path, "small-cluster")
    config = RunOptions(given.with_options({"batch_size": 2, "retain": None}).values).to_config()

    assert config.checkpoint_interval == CheckpointInterval(time_ns=4_000_000_000)
    assert (config.retained, config.batch_size) == (3, 2)
    assert (config.cost.record_ns, config.cost.link_latency_ns) == (8_000, 1_000)
    assert config.cost.storage_latency_ns > 0
    later = given_settings((f"{INTERVAL}=4s", "checkpoint_interval=3s"), path)
    assert later.values["checkpoint_interval"] == "3s"


def test_keys_of_file_and_command_line_decide_together(tmp_path: Path) -> None:
    """One enables what the other sets; and a typed mode drops the other settings of another mode."""
    path = written(tmp_path, "execution.checkpointing:\n  unaligned.enabled: true\n  aligned-checkpoint-timeout: 3s\n")

    assert given_settings((), path).values == {"mode": "aligned-timeout", "aligned_timeout": "3s"}
    both = given_settings(("execution.checkpointing.aligned-checkpoint-timeout=2s",), path)
    assert both.values == {"mode": "aligned-timeout", "aligned_timeout": "2s"}
    assert given_settings((), path).with_options({"mode": "aligned"}).values == {"mode": "aligned"}


def test_every_key_of_a_real_file_is_used_or_reported() -> None:
    """A configuration of Flink as people have them."""
    given = given_settings((), str(CONFIG))
    keys = dict(_flat(yaml.load(CONFIG.read_text("utf-8"), Loader=yaml.BaseLoader), ""))
    told = "\n".join([*given.origins.values(), *given.notes])

    assert [key for key in keys if key not in told] == []
    assert len(keys) > 40
    config = RunOptions(given.values).to_config()
    assert (config.mode, config.aligned_timeout_ns, config.retained) == ("aligned-timeout", 30_000_000_000, 3)
    assert (config.snapshot, config.failover, config.debloat_target_ns) == ("incremental", "region", 500_000_000)
    assert given.values["savepoint_dir"] == "s3://flink/savepoints"


@pytest.mark.parametrize(
    ("filed", "typed", "name", "value"),
    [
        ("execution.checkpointing.num-retained", "state.checkpoints.num-retained", "retained", 4),
        ("state.checkpoints.num-retained", "execution.checkpointing.num-retained", "retained", 4),
        ("state.checkpoints.num-retained", "retained", "retained", 4),
        ("retained", "state.checkpoints.num-retained", "retained", 4),
    ],
)
def test_a_definition_wins_in_any_spelling(tmp_path: Path, filed: str, typed: str, name: str, value: int) -> None:
    """In a file alone, Flink prefers the current spelling."""
    assert given_settings((f"{typed}={value}",), written(tmp_path, f"{filed}: 3\n")).values == {name: value}


def test_a_definition_leaves_the_other_keys_of_a_setting(tmp_path: Path) -> None:
    """The mode is made of two keys, and so are the state backend and debloating."""
    path = written(tmp_path, "execution.checkpointing.mode: EXACTLY_ONCE\nstate.changelog.enabled: true\n")
    given = given_settings(("execution.checkpointing.unaligned=true", "state.backend=forst"), path)

    assert given.values == {"mode": "unaligned", "state_backend": "changelog:lsm"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "is no YAML"),
        ("- a\n", "must hold keys with values"),
        ("execution.checkpointing.intervall: 5s\n", "did you mean execution.checkpointing.interval"),
        ("batch_size: many\n", "'many' is not a whole number"),
        ("execution.checkpointing.mode: TWICE\n", "'TWICE' is none of EXACTLY_ONCE"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    """With its path, or the key."""
    with pytest.raises(ConfigurationError, match=message):
        given_settings((), written(tmp_path, text))


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """With its path."""
    with pytest.raises(ConfigurationError, match=r"--config .*gone\.yaml: cannot be read"):
        given_settings((), str(tmp_path / "gone.yaml"))


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        ("batch_size", "is not of the form NAME=VALUE"),
        ("rest.port=8081", "-D rest.port has no effect here: there is no server"),
        ("execution.checkpointing.intervall=5s", "did you mean execution.checkpointing.interval"),
        ("batch_size=0", "batch_size is 0; it must be at least 1"),
    ],
)
def test_a_definition_that_does_nothing_is_an_error(definition: str, message: str) -> None:
    """On the command line, a user who types a key means it."""
    with pytest.raises(ConfigurationError, match=message):
        given_settings((definition,))


def test_the_explanation_names_each_setting_and_its_origin(weir: Weir) -> None:
    """After the plan; nothing is run."""
    path = written(weir.directory, "parallelism.default: 2\nrest.port: 8081\n")
    answer = weir("run", "sums.py", "--config", path, "-D", f"{INTERVAL}=1ms", "--set", "cost.link_latency=2ms",
                  "--batch-size", "4", "--preset", "small-cluster", "--explain")  # fmt: skip
    told = [" ".join(line.split()) for line in answer.stdout.partition("not at their default:\n")[2].splitlines()]

    assert answer.exit_code == 0, answer.stderr
    assert "batch_size = 4 --batch-size" in told
    assert f"checkpoint_interval = 1ms -D {INTERVAL}=1ms" in told
    assert "cost.link_latency = 2ms -D cost.link_latency=2ms" in told
    assert "cost.record = 2us --preset small-cluster" in told
    assert f"parallelism = 2 {path}: parallelism.default=2" in told
    assert f"note: {path}: rest.port has no effect: there is no server" in " ".join(answer.stderr.split())
    assert not (weir.directory / "out").exists()
    plain = weir("run", "sums.py", "--explain")
    assert "default" not in plain.stdout


def test_definitions_are_kept_for_the_next_start(weir: Weir) -> None:
    """In the descriptor, beside the options; a resumed job may have other costs, and no other mode."""
    run = ("run", "sums.py", "--batch-size", "4", "-D", "checkpoint_interval=20rec", "-Dstate.checkpoints.dir=state")
    failed = weir(*run, "--set", "cost.record=5us", "--restart", "none", "--kill", "sum[0]@60us")
    assert failed.exit_code != 0
    stored = json.loads((weir.directory / "state/weir-job.json").read_text())["options"]
    assert (stored["checkpoint_interval"], stored["settings"]) == ("20rec", {"cost.record": "5us"})

    refused = weir("resume", "state", "--set", "retained=5")
    resumed = weir("resume", "state", "-D", "cost.record=6us", "-D", "state.backend.type=forst", "--json")

    assert "--set retained: a resumed job keeps that of its first start" in refused.stderr
    assert resumed.exit_code == 0, resumed.stderr
    options = resumed.json()["run"]["options"]
    assert (options["settings"], options["state_backend"]) == ({"cost.record": "6us"}, "lsm")


def test_searches_take_them_too(weir: Weir) -> None:
    """Both verbs do; a setting that runs of a search do not have is an error, and in a file only noted."""
    path = written(weir.directory, "restart-strategy.type: none\nparallelism.default: 1\n")
    given = ("--config", path, "-D", "state.backend.type=forst", "--param", "records=4")
    explored = weir("explore", "sums.py", *given, "--runs", "2", "--fault", "none")
    checked = weir("check", "sums.py", *given, "--checkpoints", "0", "--crashes", "0", "--max-states", "20")
    refused = weir("explore", "sums.py", "--set", "restart=none")

    for answer in (explored, checked):
        assert answer.exit_code in (0, 2), answer.stderr
        assert "runs of a search have no restart of their own" in " ".join(answer.stderr.split())
    assert "a case has no setting 'restart'" in refused.stderr


def test_a_newcomer_sees_alignment(weir: Weir) -> None:
    """The word count of the first page under the costs of a small cluster."""
    answer = weir("run", str(ROOT / "examples/wordcount.py"), "-D", f"{INTERVAL}=1ms", "--preset", "small-cluster",
                  "--json")  # fmt: skip

    assert answer.exit_code == 0, answer.stderr
    history = answer.json()["checkpoints"]["history"]
    assert max(one["summary"]["alignment"]["duration"]["max"] for one in history) > 100_000
    assert max(one["end_to_end_duration"] for one in history) > 1_000_000


def test_settings_without_an_option_can_be_typed_again() -> None:
    """As they were given; a preset has its own option."""
    options = RunOptions({"cost.stragglers.map[0]": "3", "preset": "small-cluster", "retained": 3})

    assert options.as_arguments() == ["--retain", "3", "--preset", "small-cluster", "--set", "cost.stragglers.map[0]=3"]
    assert options.to_config().cost == CostModel(
        source_record_ns=2_000, record_ns=2_000, link_latency_ns=250_000, link_bytes_per_s=125_000_000,
        storage_latency_ns=5_000_000, storage_bytes_per_s=100_000_000, stragglers={"map[0]": 3},
    )  # fmt: skip
    assert RunOptions.from_dict(json.loads(json.dumps(options.as_dict())), "x") == options


def test_every_option_without_a_value_can_be_typed_again(weir: Weir) -> None:
    """The next command that a run prints must be one that runs."""
    takers = [one for one in OPTIONS.values() if one.optional]
    assert {one.name for one in takers} >= {"parallelism", "acking.ackers"}
    for one in takers:
        typed = RunOptions({"mode": "acking", one.name: one.about.none_text}).as_arguments()
        answer = weir("run", str(ROOT / "examples/wordcount.py"), "--explain", "text", *typed)
        assert "is no whole number" not in answer.stderr, (one.name, typed)
        assert "Usage" not in answer.stderr, (one.name, typed)


def test_what_is_said_of_one_task_stands_in_any_order() -> None:
    """A whole mapping that comes later does not take it back, neither in the run nor in the command it prints."""
    both = ("cost.slow_links.words=1ms", "cost.slow_links=map=2ms")
    for definitions in (both, both[::-1]):
        values = given_settings(definitions).values
        again = RunOptions(values).as_arguments()[1::2]

        assert RunOptions(values).to_config().cost.slow_links == {"map": 2_000_000, "words": 1_000_000}
        assert RunOptions(given_settings(tuple(again)).values).to_config() == RunOptions(values).to_config()


def test_a_typed_place_of_savepoints_needs_an_order_also_beside_a_file(weir: Weir, tmp_path: Path) -> None:
    """The place in a file is for other runs, too; a typed place must have an effect."""
    config = tmp_path / "config.yaml"
    config.write_text("execution.checkpointing.savepoint-dir: saved\n", encoding="utf-8")
    command = ["run", str(ROOT / "examples/wordcount.py"), "--config", str(config)]

    assert weir(*command).exit_code == 0
    refused = weir(*command, "--savepoint-dir", "here")
    assert refused.exit_code != 0
    assert "none is asked for" in " ".join(refused.stderr.split())


def test_the_next_search_has_the_same_settings(weir: Weir) -> None:
    """Otherwise it would be another search."""
    answer = weir("explore", str(ROOT / "examples/wordcount.py"), "--runs", "1", "--set", "retained=3",
                  "--param", "repeat=1")  # fmt: skip

    assert "--set retained=3 --runs 10" in " ".join(answer.stderr.split())
