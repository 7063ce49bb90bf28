"""The determinism check: reads Python source and finds code that would let the real world into a simulated run.

Rules (each has a name, shown in the finding):

* `clock`     the wall clock: `time`, `datetime.now`, the local time zone;
* `random`    random numbers that do not come from the run's own choice sequence;
* `hash`      the built-in `hash`, which differs between processes (allowed inside `__hash__`);
* `id`        memory addresses;
* `threads`   threads, processes, sockets, signals, event loops;
* `pickle`    pickle and its relatives: state is read back, so its format must be ours;
* `set-order` anything that depends on the iteration order of a set;
* `files`     files reached another way than through the file-system port;
* `dynamic`   `eval`, `exec` and imports by name, which would hide all of the above;
* `process`   data of the process: its environment, and counters that leak from one run into the next.

It works on the syntax tree, so comments, strings and look-alike names do not disturb it. A line that is right
for a reason the check cannot see says so: `# deterministic: <reason>`. A pragma without reason, or with
nothing to excuse, is itself a finding.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterable
from dataclasses import dataclass

from tests.house.set_kinds import Function, ProjectNames, Scope, SetKinds, last_name

_MODULES = {
    "clock": ("time", "timeit", "sched"),
    "random": ("random", "secrets", "numpy.random", "state_backends.base.np.random"),
    "threads": (
        "threading", "_thread", "concurrent", "multiprocessing", "asyncio", "queue", "subprocess", "signal",
        "socket", "select", "selectors",
    ),
    "pickle": ("pickle", "_pickle", "dill", "cloudpickle", "shelve", "marshal", "copyreg"),
    "files": ("pathlib", "shutil", "tempfile", "glob", "fileinput", "fcntl", "mmap"),
    "process": ("platform", "getpass", "pwd"),
}  # fmt: skip
_NAMES = {
    "clock": (
        "datetime.datetime.now", "datetime.datetime.utcnow", "datetime.datetime.today", "datetime.date.today",
    ),
    "random": ("uuid.uuid1", "uuid.uuid4", "uuid.getnode", "os.urandom", "os.getrandom"),
    "files": ("io.open", "io.FileIO"),
    "process": ("os.environ", "os.getenv", "os.getpid", "os.getcwd", "os.cpu_count", "os.uname", "sys.argv"),
}  # fmt: skip
_BUILTINS = {
    "hash": "hash", "id": "id", "open": "files",
    "eval": "dynamic", "exec": "dynamic", "__import__": "dynamic", "input": "files",
}  # fmt: skip
_MODULE_RULE = {module: rule for rule, modules in _MODULES.items() for module in modules}
_NAME_RULE = {name: rule for rule, names in _NAMES.items() for name in names}

# Parts of `os` that do not ask the operating system: names, constants and the handling of path strings.
_PURE_OS = frozenset(
    "os." + name
    for name in (
        "strerror", "fspath", "fsencode", "fsdecode", "PathLike", "SEEK_SET", "SEEK_CUR", "SEEK_END", "sep",
        "path.join", "path.split", "path.splitext", "path.basename", "path.dirname", "path.normpath",
        "path.commonpath", "path.relpath",
    )
)  # fmt: skip

_ADVICE = {
    "clock": "ask the run's clock",
    "random": "draw from a named stream of the run",
    "hash": "differs between processes; use the key's own stable hash",
    "id": "memory addresses differ between runs; use a sequence number",
    "threads": "the runtime is one thread; make it an object with step()",
    "pickle": "use the project's encoding",
    "set-order": "the order of a set differs between processes; sort it, or use a dict",
    "files": "go through the file-system port",
    "dynamic": "name what you import or call",
    "process": "belongs to the process, not to the run: hand it in, or keep it in the run's own object",
}

_PRAGMA = "# deterministic:"
# These give the same answer for any order of their input (`sorted`, `min`, `max` only without a key: ties).
_ORDER_FREE = frozenset(("set", "frozenset", "len", "any", "all", "sum", "sorted", "min", "max"))
_KEYED = frozenset(("sorted", "min", "max"))
_ORDERED_FUNCTIONS = frozenset((
    "list", "tuple", "iter", "next", "enumerate", "zip", "map", "filter", "reversed", "deque", "dict",
    "chain", "OrderedDict", "Counter", "islice", "str", "repr", "format", "reduce", "accumulate",
))  # fmt: skip
_ORDERED_METHODS = frozenset(("join", "extend", "extendleft", "fromkeys", "from_iterable", "writelines"))


@dataclass(frozen=True, order=True, slots=True)
class Finding:
    """One broken rule at one line."""

    path: str
    line: int
    rule: str
    what: str

    def __str__(self) -> str:
        advice = _ADVICE.get(self.rule)
        return f"{self.path}:{self.line}: [{self.rule}] {self.what}" + (f" ({advice})" if advice else "")


def check_source(
    source: str, path: str, *, project: ProjectNames | None = None, allowed_rules: Iterable[str] = ()
) -> list[Finding]:
    """All findings of one module, sorted by line.

    `project` holds the declarations of all modules; `allowed_rules` are rules this file is excused from.
    Raises `SyntaxError` when the source is not Python.
    """
    tree = ast.parse(source, path)
    checker = _Checker(tree, path, project or ProjectNames([tree]))
    excused = frozenset(allowed_rules)
    findings = [finding for finding in checker.findings if finding.rule not in excused]
    return sorted(set(_apply_pragmas(findings, source, path)))


def _apply_pragmas(findings: list[Finding], source: str, path: str) -> list[Finding]:
    kept = list(findings)
    for line, reason in _pragmas(source):
        if not reason:
            kept.append(Finding(path, line, "pragma", "give the reason after the colon"))
        elif not any(finding.line == line for finding in findings):
            kept.append(Finding(path, line, "pragma", "excuses nothing on this line: remove it"))
        else:
            kept = [finding for finding in kept if finding.line != line]
    return kept


def _pragmas(source: str) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    if _PRAGMA not in source:
        return found
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and token.string.startswith(_PRAGMA):
            found.append((token.start[0], token.string.removeprefix(_PRAGMA).strip()))
    return found


class _Checker(ast.NodeVisitor):
    """Walks one module with the stack of open scopes."""

    def __init__(self, tree: ast.Module, path: str, project: ProjectNames) -> None:
        self.path = path
        self.findings: list[Finding] = []
        self.kinds = SetKinds(project)
        self.imported: dict[str, str] = {}
        self.order_free: set[ast.expr] = set()
        self.functions: list[str] = []
        self.kinds.scopes.append(Scope(tree))
        self.visit(tree)

    def report(self, node: ast.AST, rule: str, what: str) -> None:
        self.findings.append(Finding(self.path, getattr(node, "lineno", 1), rule, what))

    # --- scopes

    def _visit_function(self, node: Function, name: str) -> None:
        self.kinds.scopes.append(Scope(node))
        self.functions.append(name)
        self.generic_visit(node)
        self.functions.pop()
        self.kinds.scopes.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._visit_function(node, node.name)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.report(node, "threads", f"async def {node.name}")
        self._visit_function(node, node.name)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._visit_function(node, "<lambda>")

    # --- imports and names

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            if alias.asname:
                self.imported[alias.asname] = alias.name
            else:
                root = alias.name.split(".")[0]
                self.imported[root] = root
            self._check_module(node, alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.level or node.module is None:
            return
        for alias in node.names:
            full_name = f"{node.module}.{alias.name}"
            self.imported[alias.asname or alias.name] = full_name
            if not self._check_module(node, full_name):
                self._check_name(node, full_name)

    def _check_module(self, node: ast.AST, dotted: str) -> bool:
        for module, rule in _MODULE_RULE.items():
            if dotted == module or dotted.startswith(module + "."):
                self.report(node, rule, f"import of {dotted}")
                return True
        return False

    def _dotted(self, node: ast.expr) -> str:
        """The full name of an alias (`dt.now` is `datetime.datetime.now`); empty when not imported."""
        if isinstance(node, ast.Name):
            return self.imported.get(node.id, "")
        if isinstance(node, ast.Attribute):
            owner = self._dotted(node.value)
            return f"{owner}.{node.attr}" if owner else ""
        return ""

    def visit_Name(self, node: ast.Name) -> None:
        rule = _BUILTINS.get(node.id)
        if rule is None or not isinstance(node.ctx, ast.Load) or self.kinds.is_shadowed(node.id):
            return
        if node.id == "hash" and self.functions[-1:] == ["__hash__"]:
            return  # only dicts and sets of this process see it, and the order of sets is checked separately
        self.report(node, rule, f"built-in {node.id}")

    def visit_Attribute(self, node: ast.Attribute) -> None:
        full_name = self._dotted(node)
        if full_name in _MODULE_RULE:
            self.report(node, _MODULE_RULE[full_name], full_name)
        elif not self._check_name(node, full_name):
            self.generic_visit(node)

    def _check_name(self, node: ast.AST, full_name: str) -> bool:
        """Report a banned name; whether the parts of the name need no further look."""
        if full_name in _NAME_RULE:
            self.report(node, _NAME_RULE[full_name], full_name)
        elif full_name.startswith("os.") and full_name not in _PURE_OS and full_name != "os.path":
            self.report(node, "files", full_name)
        else:
            return full_name in _PURE_OS
        return True

    # --- calls

    def visit_Call(self, node: ast.Call) -> None:
        full_name = self._dotted(node.func)
        if full_name == "datetime.datetime.fromtimestamp" and len(node.args) + len(node.keywords) < 2:
            self.report(node, "clock", "datetime.fromtimestamp without a time zone")
        if full_name == "importlib.import_module":
            self._check_dynamic_import(node)
        if full_name == "itertools.count" and not self.functions:
            self.report(node, "process", "itertools.count at module or class level")
        self._check_set_arguments(node)
        self.generic_visit(node)

    def _check_dynamic_import(self, node: ast.Call) -> None:
        name = node.args[0] if node.args else None
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            self._check_module(node, name.value)

    def _check_set_arguments(self, node: ast.Call) -> None:
        function, name = node.func, last_name(node.func)
        is_bare_pop = isinstance(function, ast.Attribute) and name == "pop" and not node.args
        if is_bare_pop and self.kinds.is_set(function.value):  # type: ignore[attr-defined]
            self.report(node, "set-order", "pop() of a set")
        is_keyed = name in _KEYED and any(keyword.arg == "key" for keyword in node.keywords)
        if name in _ORDER_FREE and isinstance(function, ast.Name) and not is_keyed:
            self.order_free.update(node.args)
            return
        ordered = name in _ORDERED_METHODS or name in _ORDERED_FUNCTIONS or is_keyed
        if ordered:
            for argument in node.args:
                if self.kinds.is_set(argument):
                    why = " with a key: ties keep the set's order" if is_keyed else ""
                    self.report(node, "set-order", f"{name}() of a set{why}")

    # --- iteration

    def _check_iterated(self, iterated: ast.expr, how: str) -> None:
        if self.kinds.is_set(iterated):
            self.report(iterated, "set-order", how)

    def visit_For(self, node: ast.For) -> None:
        self._check_iterated(node.iter, "for loop over a set")
        self.generic_visit(node)

    def visit_Starred(self, node: ast.Starred) -> None:
        if isinstance(node.ctx, ast.Load):
            self._check_iterated(node.value, "unpacking of a set")
        self.generic_visit(node)

    def visit_YieldFrom(self, node: ast.YieldFrom) -> None:
        self._check_iterated(node.value, "yield from a set")
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if any(isinstance(target, ast.Tuple | ast.List) for target in node.targets):
            self._check_iterated(node.value, "unpacking of a set")
        self.generic_visit(node)

    def visit_FormattedValue(self, node: ast.FormattedValue) -> None:
        self._check_iterated(node.value, "text of a set")
        self.generic_visit(node)

    def _visit_comprehension(self, node: ast.ListComp | ast.GeneratorExp | ast.DictComp) -> None:
        if node not in self.order_free:
            for generator in node.generators:
                self._check_iterated(generator.iter, "comprehension over a set")
        self.generic_visit(node)

    visit_ListComp = _visit_comprehension
    visit_GeneratorExp = _visit_comprehension
    visit_DictComp = _visit_comprehension
