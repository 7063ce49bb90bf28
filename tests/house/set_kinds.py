"""Which expressions of a module are sets: the half of the determinism check that looks at types.

Iterating a set of strings gives a different order in every process, so the check has to know a set when it
sees one. It goes by what can be read without running anything: literals, calls of `set`, set operators, and
names, attributes and functions whose *every* declaration in the checked rooms says "set". It may miss a set
(say, an argument without annotation); it must not call a list a set.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

SET = "set"
MAP_OF_SETS = "map of sets"
OTHER = "other"

_SET_TYPES = frozenset(("set", "frozenset", "Set", "FrozenSet", "AbstractSet", "MutableSet", "WeakSet"))
_MAP_TYPES = frozenset(("dict", "defaultdict", "Mapping", "MutableMapping", "OrderedDict", "Dict"))
_WRAPPERS = frozenset(("Final", "ClassVar", "Optional", "Annotated"))
_SET_METHODS = frozenset(("union", "intersection", "difference", "symmetric_difference"))
_MAP_READS = frozenset(("get", "pop", "setdefault"))
# A method of ours with such a name says nothing about `x.get()` where x is a plain dict.
_BUILTIN_METHODS = frozenset(name for kind in (dict, list, str, bytes, tuple) for name in dir(kind))
_SET_OPERATORS = (ast.BitOr, ast.BitAnd, ast.Sub, ast.BitXor)

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def last_name(node: ast.expr) -> str:
    """`AbstractSet` for `collections.abc.AbstractSet`; empty when the expression is not a dotted name."""
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def kind_of_annotation(node: ast.expr | None) -> str:
    """The kind that an annotation declares: a set, a mapping whose values are sets, or something else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        node = ast.parse(node.value, mode="eval").body
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        kinds = {kind_of_annotation(side) for side in (node.left, node.right) if not _is_none(side)}
        return kinds.pop() if len(kinds) == 1 else OTHER
    if isinstance(node, ast.Subscript):
        return _kind_of_generic(last_name(node.value), node.slice)
    return SET if isinstance(node, ast.expr) and last_name(node) in _SET_TYPES else OTHER


def _kind_of_generic(name: str, argument: ast.expr) -> str:
    if name in _SET_TYPES:
        return SET
    if name in _WRAPPERS:
        return kind_of_annotation(argument.elts[0] if isinstance(argument, ast.Tuple) else argument)
    if name in _MAP_TYPES and isinstance(argument, ast.Tuple) and len(argument.elts) == 2:
        return MAP_OF_SETS if kind_of_annotation(argument.elts[1]) == SET else OTHER
    return OTHER


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


class Declarations:
    """Kinds by name; a name declared in two ways is `OTHER`, so that doubt never becomes an accusation."""

    def __init__(self) -> None:
        self._kinds: dict[str, str] = {}

    def add(self, name: str, kind: str) -> None:
        """Take one declaration of `name` into account."""
        self._kinds[name] = kind if self._kinds.get(name, kind) == kind else OTHER

    def kind(self, name: str) -> str:
        """The kind every declaration agrees on, else `OTHER`."""
        return self._kinds.get(name, OTHER)

    def __contains__(self, name: str) -> bool:
        return name in self._kinds


class ProjectNames:
    """Attributes and functions of all checked modules: `task.blocked` is known to be a set everywhere."""

    def __init__(self, trees: Iterable[ast.Module] = ()) -> None:
        self.attributes = Declarations()
        self.functions = Declarations()
        for tree in trees:
            self._add(tree)

    def _add(self, tree: ast.Module) -> None:
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                kind = kind_of_annotation(node.returns)
                decorators = [last_name(decorator) for decorator in node.decorator_list]
                is_property = "property" in decorators or "cached_property" in decorators
                (self.attributes if is_property else self.functions).add(node.name, kind)
            elif isinstance(node, ast.ClassDef):
                for statement in node.body:
                    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                        self.attributes.add(statement.target.id, kind_of_annotation(statement.annotation))
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Attribute):
                self.attributes.add(node.target.attr, kind_of_annotation(node.annotation))
            elif isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Attribute):
                        self._add_assignment(target.attr, node.value)

    def _add_assignment(self, attribute: str, value: ast.expr) -> None:
        if isinstance(value, ast.Name | ast.Attribute | ast.Subscript | ast.Call) and not _builds_set(value):
            return  # a value of unknown kind says nothing for or against
        self.attributes.add(attribute, SET if _builds_set(value) else OTHER)


def _builds_set(value: ast.expr) -> bool:
    if isinstance(value, ast.Set | ast.SetComp):
        return True
    return isinstance(value, ast.Call) and last_name(value.func) in ("set", "frozenset")


def own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function, class or module without those of the functions and classes inside it."""
    for child in ast.iter_child_nodes(scope):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            yield from own_nodes(child)


class Scope:
    """The names one function or module binds, and which of them are sets."""

    def __init__(self, node: ast.Module | Function) -> None:
        self.bound: set[str] = set()
        self.declared = Declarations()
        self.assigned: dict[str, list[ast.expr | None]] = {}
        if not isinstance(node, ast.Module):
            self._bind_arguments(node.args)
        for inner in own_nodes(node):
            self._bind(inner)

    def _bind_arguments(self, arguments: ast.arguments) -> None:
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        for argument in every:
            self.declared.add(argument.arg, kind_of_annotation(argument.annotation))
        for extra in (arguments.vararg, arguments.kwarg):
            if extra is not None:
                every.append(extra)
        self.bound.update(argument.arg for argument in every)

    def _bind(self, node: ast.AST) -> None:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            self.bound.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            self.bound.add(node.name)
        elif isinstance(node, ast.alias):
            self.bound.add((node.asname or node.name).split(".")[0])
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            self.declared.add(node.target.id, kind_of_annotation(node.annotation))
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                self._assign(target, node.value if isinstance(target, ast.Name) else None)
        elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            self._assign(node.target, None)

    def _assign(self, target: ast.expr, value: ast.expr | None) -> None:
        """Note the kind that the names of a target got; None when it is unknown (a loop, an unpacking)."""
        for inner in ast.walk(target):
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                self.assigned.setdefault(inner.id, []).append(value)


class SetKinds:
    """Answers "is this expression a set?" inside the scopes that are open at that point."""

    def __init__(self, project: ProjectNames) -> None:
        self.project = project
        self.scopes: list[Scope] = []

    def is_shadowed(self, name: str) -> bool:
        """Whether a builtin's name means something else here."""
        return any(name in scope.bound for scope in self.scopes)

    def is_set(self, node: ast.expr) -> bool:
        """Whether the expression certainly is a set (or a set made of the keys of a dict)."""
        return self._kind(node, frozenset()) == SET

    def _kind(self, node: ast.expr, open_names: frozenset[str]) -> str:
        if isinstance(node, ast.Set | ast.SetComp):
            return SET
        if isinstance(node, ast.Name):
            return self._kind_of_name(node.id, open_names)
        if isinstance(node, ast.Attribute):
            return self.project.attributes.kind(node.attr)
        if isinstance(node, ast.Subscript):
            return SET if self._kind(node.value, open_names) == MAP_OF_SETS else OTHER
        if isinstance(node, ast.BinOp) and isinstance(node.op, _SET_OPERATORS):
            sides = (node.left, node.right)
            return SET if any(_is_keys_view(s) or self._kind(s, open_names) == SET for s in sides) else OTHER
        if isinstance(node, ast.Call):
            return self._kind_of_call(node, open_names)
        if isinstance(node, ast.IfExp | ast.BoolOp):
            choices = [node.body, node.orelse] if isinstance(node, ast.IfExp) else node.values
            return SET if any(self._kind(choice, open_names) == SET for choice in choices) else OTHER
        return self._kind(node.value, open_names) if isinstance(node, ast.NamedExpr) else OTHER

    def _kind_of_name(self, name: str, open_names: frozenset[str]) -> str:
        for scope in reversed(self.scopes):
            if name in scope.declared:
                return scope.declared.kind(name)
            if name in scope.assigned:
                values = scope.assigned[name]
                if name in open_names or None in values:
                    return OTHER
                kinds = {self._kind(value, open_names | {name}) for value in values if value is not None}
                return kinds.pop() if len(kinds) == 1 else OTHER
            if name in scope.bound:
                return OTHER
        return OTHER

    def _kind_of_call(self, node: ast.Call, open_names: frozenset[str]) -> str:
        function = node.func
        if isinstance(function, ast.Name):
            if function.id in ("set", "frozenset") and not self.is_shadowed(function.id):
                return SET
            return self.project.functions.kind(function.id)
        if isinstance(function, ast.Attribute):
            owner = self._kind(function.value, open_names)
            if owner == SET:
                return SET if function.attr in _SET_METHODS or function.attr == "copy" else OTHER
            if owner == MAP_OF_SETS and function.attr in _MAP_READS:
                return SET
            return OTHER if function.attr in _BUILTIN_METHODS else self.project.functions.kind(function.attr)
        return OTHER


def _is_keys_view(node: ast.expr) -> bool:
    is_method = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    return is_method and node.func.attr in ("keys", "items") and not node.args  # type: ignore[attr-defined]
