"""Further vectors about local copies of state and restores, written from the rules."""

from __future__ import annotations

from tests.conformance.compare import Vector
from tests.conformance.state_vectors import vector_of


def _local(name: str, stored: list[int], op: str, checkpoint: int | None, expect: Vector, **flags: bool) -> Vector:
    return vector_of("local_state_store", name, {"stored": stored, "op": op, "checkpoint": checkpoint, **flags}, expect)


def _alternatives(
    name: str, kind: str, remote: list[str], ids: Vector, local: list[list[str]], expect: list[list[str]]
) -> Vector:
    given = {"state_kind": kind, "remote": remote, "ids": ids, "alternatives_high_to_low": local}
    return vector_of("restore_alternatives", name, given, {"options_as_sets": expect})


LOCAL_RECOVERY = [
    _local("a stored one is found", [1, 2], "retrieve", 2, {"returned": 2, "kept": [1, 2], "discarded": []}),
    _local("what was never stored is not", [1, 3], "retrieve", 2, {"returned": None, "local_directory_exists": False}),
    _local(
        "copies are used though none are made any more",
        [1],
        "retrieve",
        1,
        {"returned": 1},
        local_backup=False,
        local_recovery=True,
    ),
    _local("neither made nor used", [1], "retrieve", 1, {"returned": None}, local_backup=False, local_recovery=False),
    _local("an older one is confirmed late", [3, 4], "confirm", 2, {"kept": [3, 4], "discarded": []}),
    _local("one that left nothing is confirmed", [3, 4, 6], "confirm", 5, {"kept": [6], "discarded": [3, 4]}),
    _local("one that left nothing is aborted", [3, 4], "abort", 5, {"kept": [3, 4], "discarded": []}),
    _local("the restored one is not there", [3, 4], "prune_all_except", 5, {"kept": [], "discarded": [3, 4]}),
    _local(
        "only the damaged one goes",
        [0, 7],
        "corrupt_then_retrieve_in_new_process",
        7,
        {"returned": None, "local_directory_exists": False, "kept": [0], "discarded": [7]},
    ),
    _local("none is kept beside others", [1], "store_null_then_retrieve", 3, {"returned": None, "kept": [1]}),
    _alternatives(
        "two of three key group ranges are here",
        "keyed",
        ["r0", "r1", "r2"],
        {"r0": 0, "r1": 1, "r2": 2, "l1": 1, "l2": 2, "l9": 9},
        [["l2", "l9"], ["l1"]],
        [["r0", "l1", "l2"], ["r0", "r1", "r2"]],
    ),
    _alternatives(
        "the better of two copies is taken",
        "keyed",
        ["r0"],
        {"r0": "0-63", "good": "0-63", "worse": "0-63"},
        [["good"], ["worse"]],
        [["good"], ["r0"]],
    ),
    _alternatives("other key groups are no copy", "keyed", ["r0"], {"r0": 0, "l1": 1}, [["l1"]], [["r0"]]),
    _alternatives("nothing is here", "keyed", ["r0"], {"r0": 0}, [], [["r0"]]),
    _alternatives(
        "every copy that fits is tried",
        "operator",
        ["r"],
        {"r": 0, "a": 0, "b": 0},
        [["a"], ["b"]],
        [["a"], ["b"], ["r"]],
    ),
    _alternatives("other offsets are another state", "operator", ["r"], {"r": 0, "l": 1}, [["l"]], [["r"]]),
    _alternatives(
        "two handles tell of rescaling", "operator", ["r", "s"], {"r": 0, "s": 1, "l": 0}, [["l"]], [["r", "s"]]
    ),
    _alternatives("a pair is no copy of one", "operator", ["r"], {"r": 0, "k": 0, "l": 0}, [["k", "l"]], [["r"]]),
    _alternatives("no operator state", "operator", [], {"l": 0}, [["l"]], [[]]),
    *(
        vector_of("restore_procedure", f"options {', '.join(options)}", {"options": options}, expect)
        for options, expect in (
            (["works"], {"tried": [0], "restored_from": 0}),
            (["fails"], {"tried": [0], "error": "could_not_restore"}),
            (["fails", "fails", "works"], {"tried": [0, 1, 2], "restored_from": 2}),
            (["fails", "blocks_then_task_cancelled", "works"], {"tried": [0, 1], "error": "cancelled"}),
            (["fails", "blocks_then_task_cancelled"], {"tried": [0, 1], "error": "cancelled"}),
        )
    ),
]
