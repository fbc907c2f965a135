"""How the published scripts judge code, faults included: the protocol "paper".

Chat replies: the longest fenced block, wherever its fence stands, or what looks like lines of code; stripped, so that a
function's body loses its first indent. The result and the tests become one script, and exit code 0 is a pass, even if
the script left before its tests. Raw completions were judged by lm-eval: prompt, completion and tests must run to the
end. Two things differ from the published runs: programs run in the sandbox, and the limit is CPU time instead of 10 s
(lm-eval: 3 s) on the clock, since on a busy machine the clock decides by chance.
"""

from __future__ import annotations

import ast
import re
from typing import Any

from s2d2cli.tasks.code import parsed
from s2d2cli.tasks.sandbox import Program

FENCES = (re.compile(r"```python[ \t]*\n(.*?)```", re.DOTALL), re.compile(r"```[ \t]*\n(.*?)```", re.DOTALL))
MARKED = re.compile(r"\[BEGIN\](.*?)\[DONE\]", re.DOTALL)
CODE_LINES = ("def ", "class ", "import ", "from ", "@")

# Becomes the script, so that everything is as in `python FILE`: __name__, exit handlers, threads that are waited for.
LAUNCHER = """\
import os, sys
try:
    with open("solution.py", "w", encoding="utf-8", errors="surrogatepass") as file:
        file.write({script!r})
    os.execv(sys.executable, [sys.executable, "-s", "-B", "solution.py"])
finally:
    os._exit(1)
"""

# What a program may import and still be sure to do the same as a script and as a module, in every run.
PURE_MODULES = {
    "bisect", "cmath", "collections", "copy", "decimal", "fractions", "functools", "heapq", "itertools", "math",
    "operator", "re", "statistics", "string", "typing",
}  # fmt: skip
TELLING_NAMES = {
    "BaseException", "SystemExit", "_exit", "breakpoint", "compile", "delattr", "dir", "eval", "exec", "exit",
    "getattr", "globals", "hash", "help", "id", "input", "locals", "open", "quit", "repr", "setattr", "vars",
}  # fmt: skip


def published_extract(reply: str) -> str:
    """The program as the published scripts find it: always something, if need be the whole reply."""
    for fence in FENCES:
        if blocks := fence.findall(reply):
            return str(max(blocks, key=len)).strip()
    if found := MARKED.search(reply):
        return found[1].strip()
    return longest_run(reply.split("\n")).strip() or reply.strip()


def longest_run(lines: list[str]) -> str:
    """The longest run of definitions, imports and indented lines; constants at the margin are lost."""
    runs: list[list[str]] = [[]]
    for line in lines:
        if line.startswith(CODE_LINES) or (runs[-1] and (not line.strip() or line[0].isspace())):
            runs[-1].append(line)
        elif runs[-1]:
            runs.append([])
    return max(("\n".join(run) for run in runs), key=len)


def humaneval_script(row: dict[str, Any], reply: str) -> str:
    code = published_extract(reply)
    if f"def {row['entry_point']}" not in code:  # in the text: also true of a longer name
        code = row["prompt"] + code
    return "\n".join([code, row["test"], f"check({row['entry_point']})"])


def mbpp_script(tests: list[str], setup: str, reply: str) -> str:
    """The set-up stands before the code, whose classes it may need (task 367)."""
    return "\n".join([setup, published_extract(reply), *tests])


def launcher(script: str) -> str:
    """A program that becomes `script`. Its outcome is never "pass": the exit code tells."""
    return LAUNCHER.format(script=script)


def same_run(script: ast.Module, program: Program) -> bool:
    """Whether a script and a program are sure to fare alike: the same statements, none of which can tell the two apart.

    They may differ in how they are run (as `__main__`, without the sandbox's frames around them, with another end), so
    nothing in them may look at that, leave early, or depend on more than its own values.
    """
    whole = parsed("\n".join([program.code, program.setup, *program.tests]))
    return whole is not None and ast.dump(whole) == ast.dump(script) and all(map(is_plain, ast.walk(script)))


def is_plain(node: ast.AST) -> bool:
    if isinstance(node, ast.Import):
        return all(alias.name in PURE_MODULES for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        return node.module in PURE_MODULES and not any(alias.name.startswith("_") for alias in node.names)
    if isinstance(node, ast.Name):
        return node.id not in TELLING_NAMES and not node.id.startswith("__")
    if isinstance(node, ast.Attribute):
        return node.attr not in TELLING_NAMES and not node.attr.startswith("_")
    return not isinstance(node, (ast.ClassDef, ast.ExceptHandler, ast.AsyncFunctionDef))
