"""Drops the example calls from a program that is going to be tested.

Models like to end with `print(f(5))`, asserts of their own or a `main()` that waits for input; such lines must neither
fail a right function nor use up its time. A top-level statement is an example if it depends on a wanted name, on
`input`, or on anything that does, and nothing in the definitions needs what it binds. Definitions, imports, constants
and initialisers stay.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
IMPORTS = (ast.Import, ast.ImportFrom)


def without_examples(source: str, tree: ast.Module, names: set[str]) -> str:
    """`source` without the lines of its examples; a line that also holds something else stays."""
    needed = needed_names(tree, names)
    dependent = names | {"input"}
    kept, dropped = set[int](), set[int]()
    for statement in tree.body:
        example = is_example(statement, dependent, needed)
        if example or (isinstance(statement, SCOPES) and free_names(statement) & dependent):
            dependent = dependent | bound(statement)
        (dropped if example else kept).update(lines_of(statement))
    lines = source.split("\n")
    return "\n".join(line for number, line in enumerate(lines, 1) if number in kept or number not in dropped)


def needed_names(tree: ast.Module, names: set[str]) -> set[str]:
    """The wanted names, what the definitions read from outside, and what is read to compute either."""
    needed = names.union(*(free_names(statement) for statement in tree.body if isinstance(statement, SCOPES)))
    for statement in reversed(tree.body):
        if bound(statement) & needed and not isinstance(statement, SCOPES):
            needed = needed | loaded(statement)
    return needed


def is_example(statement: ast.stmt, dependent: set[str], needed: set[str]) -> bool:
    if isinstance(statement, (*SCOPES, *IMPORTS)) or bound(statement) & needed:
        return False
    idle = isinstance(statement, ast.Expr) and not any(isinstance(node, ast.Call) for node in ast.walk(statement))
    return idle or bool(loaded(statement) & dependent)


def bound(statement: ast.AST) -> set[str]:
    """Names that a top-level statement gives a meaning to, also inside its branches."""
    if isinstance(statement, SCOPES):
        return {statement.name}
    if isinstance(statement, IMPORTS):
        return {alias.asname or alias.name.partition(".")[0] for alias in statement.names}
    names = {statement.id} if isinstance(statement, ast.Name) and isinstance(statement.ctx, ast.Store) else set()
    return names.union(*map(bound, ast.iter_child_nodes(statement)))


def loaded(tree: ast.AST) -> set[str]:
    """Names that are read anywhere inside."""
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def free_names(definition: ast.AST) -> set[str]:
    """Names that a definition reads and does not bind itself: what it needs from outside."""
    return loaded(definition) - set(local_names(definition))


def local_names(definition: ast.AST) -> Iterator[str]:
    exported = {name for node in ast.walk(definition) if isinstance(node, ast.Global) for name in node.names}
    for node in ast.walk(definition):
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id not in exported:
            yield node.id


def lines_of(statement: ast.stmt) -> range:
    decorators = getattr(statement, "decorator_list", [])
    first = min([statement.lineno, *(decorator.lineno for decorator in decorators)])
    return range(first, (statement.end_lineno or first) + 1)
