"""The words after ``weir``: one module per verb."""

from __future__ import annotations

VERBS = {
    "run": "engine.cli.verbs.run",
    "resume": "engine.cli.verbs.resume",
    "explore": "engine.cli.verbs.explore",
    "check": "engine.cli.verbs.check",
    "replay": "engine.cli.verbs.replay",
    "shrink": "engine.cli.verbs.shrink",
    "diff": "engine.cli.verbs.diff",
    "compare": "engine.cli.verbs.compare",
    "view": "engine.cli.verbs.view",
    "inspect": "engine.cli.verbs.inspect",
    "savepoint": "engine.cli.verbs.savepoint",
    "sweep": "engine.cli.verbs.sweep",
    "report": "engine.cli.verbs.report",
    "advise": "engine.cli.verbs.advise",
}
"""Verb -> the module whose ``command`` it is; imported when the verb is used."""
