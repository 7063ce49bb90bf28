"""Any history of one task with local recovery: after any damage to the copies, state is that of the checkpoint."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.state_backends.local.machine import SPLITS, Machine
from tests.state_backends.support import told

keys = st.sets(st.integers(0, 30), max_size=6)
values = st.sampled_from(["a", "b", "x" * 9_000])


class History(RuleBasedStateMachine):
    """One task: it works, takes checkpoints that end in every way, dies and comes back; its copies are damaged."""

    backend: str
    incremental: bool

    @initialize()
    def begin(self) -> None:
        self.machine = Machine(self.backend, incremental=self.incremental)
        self.task = self.machine.start()
        self.state: tuple[dict[int, Any], list[Any]] = ({}, [])
        self.taken: dict[int, tuple[dict[int, Any], list[Any]]] = {}
        self.completed = [(0, self.state)]
        self.next_id = 1
        self.damaged = False

    @rule(keys=keys, value=values)
    def work(self, keys: set[int], value: str) -> None:
        self.task.put(*sorted(keys), value=value)
        splits = [*self.state[1], value]
        self.task.operator.list_state(SPLITS).update(splits)
        self.state = (self.state[0] | dict.fromkeys(keys, value), splits)

    @rule(fails=st.booleans())
    def take(self, fails: bool) -> None:
        self.task.checkpoint(self.next_id, fails=fails)
        if fails:
            told(self.task.keyed).abort(self.next_id)
        else:
            self.taken[self.next_id] = self.state
        self.next_id += 1

    @precondition(lambda self: self.taken)
    @rule(data=st.data(), is_told=st.booleans())
    def complete(self, data: st.DataObject, is_told: bool) -> None:
        checkpoint_id = data.draw(st.sampled_from(sorted(self.taken)))
        self.completed.append((checkpoint_id, self.taken[checkpoint_id]))
        self.taken = {one: state for one, state in self.taken.items() if one > checkpoint_id}
        if is_told:
            self.task.confirm(checkpoint_id)

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        checkpoint_id = data.draw(st.sampled_from(sorted(self.taken)))
        del self.taken[checkpoint_id]
        self.task.recovery.abort(checkpoint_id)
        told(self.task.keyed).abort(checkpoint_id)

    @precondition(lambda self: self.machine.local_files())
    @rule(data=st.data(), how=st.sampled_from(["flip", "cut", "delete"]))
    def damage(self, data: st.DataObject, how: str) -> None:
        fs = self.machine.fs
        path = f"{self.machine.stores.root}/{data.draw(st.sampled_from(self.machine.local_files()))}"
        content = bytearray(fs.read_bytes(path))
        at = data.draw(st.integers(0, max(0, len(content) - 1)))
        # Hard links share their bytes with live files of the store, so the damaged file is another one.
        fs.delete(path)
        if how != "delete":
            content[at : at + 1] = bytes(byte ^ 4 for byte in content[at : at + 1])
            with fs.open_write(path) as file:
                file.write(bytes(content[:at] if how == "cut" else content))
        self.damaged = True

    @rule()
    def restart(self) -> None:
        checkpoint_id, state = self.completed[-1]
        counts = self.machine.counts
        failures = counts.secondary_failures
        self.task.keyed.dispose()
        self.task = self.machine.start(checkpoint_id or None)
        self.state = state
        self.taken = {}
        assert self.task.values() == dict(sorted(state[0].items()))
        assert self.task.operator.list_state(SPLITS).get() == state[1]
        assert self.damaged or counts.secondary_failures == failures == 0
        assert self.task.recovery.store.kept in ((), (checkpoint_id,))

    @invariant()
    def nothing_is_left(self) -> None:
        """Directories of local snapshots are those of the checkpoints that are kept."""
        directories = {int(path.split("/")[1].removeprefix("chk-")) for path in self.machine.local_files()}
        assert directories <= set(self.task.recovery.store.kept)


@pytest.mark.parametrize(
    ("backend", "incremental"),
    [("heap", False), ("heap", True), ("lsm", False), ("lsm", True), ("changelog:lsm", True)],
)
def test_state_is_that_of_the_checkpoint(backend: str, incremental: bool) -> None:
    """Over every backend: copies make no difference, whatever befalls them, and all of them are deleted."""
    history = type("OverBackend", (History,), {"backend": backend, "incremental": incremental})
    run_state_machine_as_test(history, settings=settings(max_examples=60, stateful_step_count=30))
