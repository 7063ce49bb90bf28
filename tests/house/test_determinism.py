"""The determinism check finds exactly the code that it promises to find."""

from __future__ import annotations

import pytest

from tests.house.determinism import check_source

BANNED = [
    ("clock", "import time"),
    ("clock", "import time as t"),
    ("clock", "from time import perf_counter"),
    ("clock", "def f():\n    import time"),
    ("clock", "import datetime\nnow = datetime.datetime.now()"),
    ("clock", "from datetime import datetime\nnow = datetime.utcnow()"),
    ("clock", "from datetime import datetime as dt\nclock = dt.now"),
    ("clock", "from datetime import date\nd = date.today()"),
    ("clock", "from datetime import datetime\nd = datetime.fromtimestamp(0)"),
    ("clock", "from importlib import import_module\nt = import_module('time')"),
    ("random", "import random"),
    ("random", "from random import Random"),
    ("random", "import secrets"),
    ("random", "from uuid import uuid4"),
    ("random", "import uuid\nu = uuid.uuid4()"),
    ("random", "import numpy as np\nx = np.random.rand()"),
    ("random", "from numpy import random"),
    ("random", "from state_backends.base import np\nx = np.random.rand()"),
    ("hash", "h = hash('a')"),
    ("hash", "def f(items): return sorted(items, key=hash)"),
    ("hash", "class A:\n    def __eq__(self, other): return hash(self) == hash(other)"),
    ("id", "i = id(object())"),
    ("id", "def f(items): return {id(x): x for x in items}"),
    ("threads", "import threading"),
    ("threads", "from concurrent.futures import ThreadPoolExecutor"),
    ("threads", "import asyncio"),
    ("threads", "import subprocess"),
    ("threads", "import multiprocessing.pool"),
    ("threads", "async def f(): pass"),
    ("pickle", "import pickle"),
    ("pickle", "from pickle import dumps"),
    ("pickle", "import shelve"),
    ("files", "f = open('x')"),
    ("files", "import os\nos.rename('a', 'b')"),
    ("files", "import os as system\nsystem.remove('a')"),
    ("files", "from os import replace"),
    ("files", "import os\nx = os.path.exists('a')"),
    ("files", "from os.path import getsize"),
    ("process", "import os\nhome = os.environ['HOME']"),
    ("process", "import os\npid = os.getpid()"),
    ("process", "import platform"),
    ("random", "import os\nb = os.urandom(4)"),
    ("files", "from pathlib import Path"),
    ("files", "import io\nf = io.open('x')"),
    ("dynamic", "eval('1')"),
    ("dynamic", "exec('x = 1')"),
    ("dynamic", "m = __import__('random')"),
    ("process", "import itertools\n_ids = itertools.count()"),
    ("process", "from itertools import count\nclass A:\n    ids = count(1)"),
    ("set-order", "for x in {1, 2}: pass"),
    ("set-order", "for x in set('ab'): pass"),
    ("set-order", "s = frozenset('ab')\nt = list(s)"),
    ("set-order", "s = {x for x in 'ab'}\nt = [x for x in s]"),
    ("set-order", "s = set()\nt = {x: 1 for x in s}"),
    ("set-order", "s = set()\nt = tuple(x for x in s)"),
    ("set-order", "s = set('ab')\nt = ','.join(s)"),
    ("set-order", "s = set('ab')\nt = []\nt.extend(s)"),
    ("set-order", "s = set('ab')\nx = s.pop()"),
    ("set-order", "s = set('ab')\nt = [*s]"),
    ("set-order", "s = set('ab')\nprint(*s)"),
    ("set-order", "s = set('ab')\na, b = s"),
    ("set-order", "s = set('ab')\nt = f'{s}'"),
    ("set-order", "s = set('ab')\nt = repr(s)"),
    ("set-order", "s = set('ab')\nt = sorted(s, key=len)"),
    ("set-order", "s = set('ab')\nt = max(s, key=len)"),
    ("set-order", "s = set('ab')\nt = next(iter(s))"),
    ("set-order", "s = set('ab')\nd = dict.fromkeys(s)"),
    ("set-order", "def f(s: set[str]):\n    yield from s"),
    ("set-order", "def f(s: set[str] | None):\n    for x in s or (): pass"),
    ("set-order", "def f(s: 'frozenset[str]'):\n    for x in s: pass"),
    ("set-order", "def f(a, b):\n    for x in a.keys() - b: pass"),
    ("set-order", "def f(a: set[int], b):\n    for x in a | b: pass"),
    ("set-order", "def f(a: set[int], b):\n    for x in a.union(b): pass"),
    ("set-order", "def f(m: dict[str, set[int]]):\n    for x in m['a']: pass"),
    ("set-order", "def f(m: dict[str, set[int]]):\n    for x in m.get('a', ()): pass"),
    ("set-order", "def f() -> set[int]: ...\ndef g():\n    for x in f(): pass"),
    ("set-order", "class A:\n    blocked: set[int]\ndef f(a):\n    for x in a.blocked: pass"),
    ("set-order", "class A:\n    def __init__(self): self.x = set()\n    def f(self): return list(self.x)"),
    ("set-order", "class A:\n    @property\n    def p(self) -> set[int]: ...\ndef f(a): return list(a.p)"),
    ("pragma", "import time  # deterministic:"),
    ("pragma", "x = 1  # deterministic: there is nothing here to excuse"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "source"), BANNED)
def test_check_finds(rule: str, source: str) -> None:
    """Each banned construct is found, under its own rule."""
    assert rule in {finding.rule for finding in check_source(source, "snippet.py")}


HARMLESS = [
    "# time.time() and random.random() in a comment\ntext = 'hash(x), id(y), import pickle'",
    "class Record:\n    id: int\n    def f(self): return self.id",
    "def f(id, hash): return hash(id)",
    "def f(rows):\n    for id in rows: yield id",
    "class A:\n    def __hash__(self): return hash((1, 2))",
    "class Clock:\n    def time(self): return 0\ndef f(clock): return clock.time()",
    "from datetime import UTC, datetime\nd = datetime.fromtimestamp(0, tz=UTC)",
    "import uuid\nu = uuid.uuid5(uuid.NAMESPACE_URL, 'x')",
    "import io\nb = io.BytesIO()",
    "import itertools\ndef f(): return itertools.count()",
    "def f(fs): return fs.open('x')",
    "import os\ntext = os.strerror(5)\np = os.path.join('a', 'b')",
    "from os import SEEK_END, path\np = path.basename('a/b')",
    "s = set('ab')\nt = sorted(s)",
    "s = set('ab')\nt = sorted(x.upper() for x in s)",
    "s = set('ab')\nn = len(s), any(x for x in s), max(s), sum(1 for _ in s)",
    "s = set('ab')\nt = {x.upper() for x in s}",
    "s = set('ab')\nb = 'a' in s and s <= {'a'}",
    "def f(s: list[int]):\n    for x in s: pass",
    "def f(s):\n    s = sorted(set(s))\n    for x in s: pass",
    "def f(m: dict[str, int]):\n    return [*m, *m.keys(), *m.items()]",
    "def f(m: dict[str, set[int]]):\n    return list(m)",
    "class A:\n    open: set[int]\nclass B:\n    open: list[int]\ndef f(b): return list(b.open)",
    "class A:\n    def get(self) -> set[int]: ...\ndef f(d): return list(d.get('x'))",
    "x: dict[str, None] = {}\nt = list(x)",
    "import time  # deterministic: only the type is used",
]


@pytest.mark.parametrize("source", HARMLESS)
def test_check_accepts(source: str) -> None:
    """Look-alikes, names in strings, order-free uses of sets and excused lines are left alone."""
    assert check_source(source, "snippet.py") == []


def test_finding_says_where_and_what_to_do() -> None:
    """A finding reads `file:line: [rule] what (advice)`."""
    (finding,) = check_source("x = 1\nfor y in {x}: pass\n", "engine/runtime/a.py")

    expected = (
        "engine/runtime/a.py:2: [set-order] for loop over a set"
        " (the order of a set differs between processes; sort it, or use a dict)"
    )
    assert str(finding) == expected


def test_excused_rule_excuses_only_itself() -> None:
    """A border file is excused from the rules it names and from no other."""
    findings = check_source("import shutil, random", "snippet.py", allowed_rules=("files",))

    assert [finding.rule for finding in findings] == ["random"]
