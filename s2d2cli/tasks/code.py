"""Finds the program in a model's reply.

Candidates, best first: all fenced Python blocks joined, each block alone (the last first), the text itself, the runs of
lines in it that parse. The first that compiles and defines the wanted names wins. A reply may also repeat or continue a
prompt that is a program without its end: then a candidate gets what stands in the prompt before the wanted definition,
or, if it defines nothing wanted and begins indented, the whole prompt in front. Fences count only at the start of a
line, and a block ends at the first closing fence with which it compiles, since a docstring may hold fences too.
"""

from __future__ import annotations

import ast
import builtins
import re
import warnings
from collections.abc import Iterator

from s2d2cli.tasks.prune import bound, without_examples

# Bounds for degenerate replies, such as one line repeated a thousand times; a real reply stays far below them.
MAX_LENGTH = 100_000  # characters that are looked at
MAX_RUNS = 50  # places at which a run of code may begin
MAX_TRIES = 8  # ends that are tried for one block or run

OPENING = re.compile(r"([ \t]*)(`{3,}|~{3,})[ \t]*([^\s`]*)[^`]*")
PYTHON = ("", "py", "python", "python3")
CODE_START = re.compile(r"(?:import|from|def|class|async|if|for|while|with|try)\b|@|[A-Za-z_]\w*(?:\s*:[^=]+)?\s*=[^=]")
CODE_LIKE = re.compile(r"\s*(?:(?:def|class|import) \w|from [\w.]+ import|return\b|@\w|\w+ = )")


def extract_code(reply: str, names: set[str], prompt: str = "") -> str | None:
    """The program in `reply` that defines `names`; if none does, the best guess; None if nothing looks like code."""
    reply = reply[:MAX_LENGTH].replace("\r\n", "\n")
    blocks, texts = python_blocks(reply), marked(reply)
    preamble = before_definition(prompt, names)
    for candidate in definitions(blocks, texts):
        tree = parsed(candidate) if candidate.strip() else None
        if tree is not None and names <= defined(tree):
            return without_examples(*behind(preamble, candidate, tree), names)
    for candidate in continuations(blocks, texts, prompt) if prompt else ():
        tree = parsed(prompt + candidate) if is_indented(candidate) else None
        if tree is not None:
            return without_examples(prompt + candidate, tree, names)
    guess = "\n".join(blocks) or (texts[0] if looks_like_code(texts[0]) else "")
    return (prompt if is_indented(guess) else preamble) + guess if guess.strip() else None


def behind(preamble: str, candidate: str, tree: ast.Module) -> tuple[str, ast.Module]:
    """The candidate with the prompt's imports and helpers in front, unless it has all of them itself."""
    given = parsed(preamble)
    if given is None or defined(given) <= defined(tree):
        return candidate, tree
    whole = parsed(preamble + candidate)
    return (candidate, tree) if whole is None else (preamble + candidate, whole)


def before_definition(prompt: str, names: set[str]) -> str:
    """What stands in a prompt before the function that is to be written: its imports, constants and helpers."""
    heads = [re.search(rf"^(?:async )?def {re.escape(name)}\b", prompt, re.MULTILINE) for name in names]
    return prompt[: min((head.start() for head in heads if head), default=len(prompt))]


def wanted_names(tests: list[str], setup: str = "") -> set[str]:
    """The functions and classes that tests and setup call and that neither Python nor the setup provides."""
    trees = [tree for tree in map(parsed, [*tests, setup]) if tree is not None]
    functions = (node.func for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call))
    called = {function.id for function in functions if isinstance(function, ast.Name)}
    given = set().union(*map(defined, trees))
    return {name for name in called - given if not hasattr(builtins, name)}


def marked(reply: str) -> list[str]:
    """The texts between [BEGIN] and [DONE], the last first; a reply may leave out either, or both."""
    return [piece.partition("[DONE]")[0] for piece in reversed(reply.split("[BEGIN]", MAX_TRIES))]


def definitions(blocks: list[str], texts: list[str]) -> Iterator[str]:
    """Texts that may be the whole program, best first."""
    yield "\n".join(block for block in blocks if parsed(block) is not None)
    yield from reversed(blocks)
    for text in texts:
        yield text
        yield runs_of_code(text)


def continuations(blocks: list[str], texts: list[str], prompt: str) -> Iterator[str]:
    """Texts that may be the rest of the program that `prompt` begins, best first."""
    joined = "\n".join(block for block in blocks if parsed(prompt + block) is not None)
    for text in (joined, *reversed(blocks), *texts):
        yield text
        yield continuation(text, prompt)


def python_blocks(reply: str) -> list[str]:
    """The fenced blocks in order that are Python or do not say; one that is never closed reaches to the end."""
    lines = reply.split("\n")
    blocks = []
    index = 0
    while index < len(lines):
        opening = OPENING.fullmatch(lines[index])
        index += 1
        if opening:
            end = closing_line(lines, index, opening)
            if opening[3].lower() in PYTHON:
                blocks.append(without_indent(lines[index:end], opening))
            index = end + 1
    return blocks


def closing_line(lines: list[str], start: int, opening: re.Match[str]) -> int:
    """The first closing fence with which the block compiles, else simply the first, else the end."""
    bare = re.compile(rf"[ \t]{{0,{len(opening[1])}}}{opening[2]}+[ \t]*")
    ends = [index for index in range(start, len(lines)) if bare.fullmatch(lines[index])]
    compiling = (end for end in ends[:MAX_TRIES] if parsed(without_indent(lines[start:end], opening)) is not None)
    return next(compiling, ends[0] if ends else len(lines))


def without_indent(lines: list[str], opening: re.Match[str]) -> str:
    """The lines of a block, moved left as far as its fence was indented, as in a list item."""
    width = len(opening[1])
    return "\n".join(line[width:] if not line[:width].strip() else line for line in lines)


def continuation(text: str, prompt: str) -> str:
    """As much of `text` as continues `prompt`, without the prose that may follow."""
    head = prompt.split("\n")[:-1]
    lines = text.split("\n")
    return "\n".join(lines[: max(0, parsing_length(head + lines) - len(head))])


def is_indented(text: str) -> bool:
    """Whether the first line with something in it is set in, as the body of a function is."""
    return text.lstrip("\n")[:1] in (" ", "\t") and bool(text.strip())


def runs_of_code(text: str) -> str:
    """All runs of lines that begin like code and parse, joined: what is left of a reply without its prose."""
    lines = text.split("\n")
    kept: list[str] = []
    end = 0
    for start in [index for index, line in enumerate(lines) if CODE_START.match(line)][:MAX_RUNS]:
        if start >= end:
            end = start + parsing_length(lines[start:])
            kept += lines[start:end]
    return "\n".join(kept)


def parsing_length(lines: list[str]) -> int:
    """How many of the first lines form a program. A statement with an error is dropped as a whole, never mended."""
    length = len(lines)
    for _ in range(MAX_TRIES):
        error_line = line_of_error("\n".join(lines[:length]))
        if error_line is None:
            return length
        length = min(length, error_line) - 1
        while length > 0 and (not lines[length].strip() or lines[length][0].isspace()):
            length -= 1
    return 0


def line_of_error(text: str) -> int | None:
    """The line, from 1, at which the text stops being a program; None if it is one."""
    try:
        parse(text)
    except SyntaxError as error:
        return error.lineno or 1
    except (ValueError, RecursionError, MemoryError):
        return 1
    return None


def looks_like_code(text: str) -> bool:
    return any(map(CODE_LIKE.match, text.split("\n")))


def parsed(text: str) -> ast.Module | None:
    """The syntax tree of a program that compiles, else None."""
    try:
        return parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def parse(text: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what a program escapes in its strings is its own affair
        compile(text, "<reply>", "exec", dont_inherit=True)  # finds more than the parser: a return outside a function
        return ast.parse(text)


def defined(tree: ast.Module) -> set[str]:
    """Names that the top level of a program binds."""
    return set().union(*map(bound, tree.body))
