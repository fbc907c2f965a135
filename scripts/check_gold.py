"""Puts the published gold answers, written in many ways, through the scorers: each must be judged right.

    python scripts/check_gold.py --data DIR [--json] [--jobs N] [--every K]

DIR holds the benchmark files under their published names. "fixed" is the protocol that must find every answer right,
"paper" shows what the published scripts make of the same replies. The generated code is gold code; it runs in the
sandbox all the same. Exit code 1: a right answer was judged wrong, and nothing in EXPLAINED says why. A "timeout" is no
fault of a scorer but a slow machine (task 123 of MBPP needs most, about 3 s of CPU time); it counts as one here.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

from s2d2cli.errors import S2D2Error
from s2d2cli.tasks.base import Sample, Score, Task
from s2d2cli.tasks.code import before_definition
from s2d2cli.tasks.gsm8k import GSM8K
from s2d2cli.tasks.humaneval import HumanEval
from s2d2cli.tasks.mbpp import MBPP, MBPPSanitized

Row = dict[str, Any]
Verdict = tuple[str, str, str, Score]  # suite, way, sample id, score
EXPLAINED: dict[str, str] = {}  # sample id -> why its gold answer cannot pass
UNEXPLAINED = "not explained"


@dataclass(frozen=True)
class Suite:
    """A task on its file, and the ways in which its gold answers are written; a way may not apply to a row (None)."""

    task: Callable[[Path], Task]
    ways: dict[str, Callable[[Row], str | None]]


def gold_number(row: Row) -> str:
    return str(row["answer"].rpartition("####")[2]).strip().replace(",", "")


def number(form: str) -> Callable[[Row], str]:
    """`form` with the gold number in place of N, and of N,NNN with thousands separators."""

    def reply(row: Row) -> str:
        plain = gold_number(row)
        return form.replace("N,NNN", f"{int(plain):,}").replace("N", plain)

    return reply


def numbers(*forms: str) -> dict[str, Callable[[Row], str | None]]:
    return {form.replace("\n", " "): number(form) for form in forms}


def separated(separator: str) -> Callable[[Row], str]:
    return lambda row: number(r"\boxed{N,NNN}")(row).replace(",", separator)


def dollars(row: Row) -> str:
    value = int(gold_number(row))
    return f"It costs {'-' if value < 0 else ''}${abs(value):,}.00 in total."


def fenced(code: str, language: str = "python") -> str:
    return f"```{language}\n{code}\n```"


def whole(row: Row) -> str:
    return str(row["prompt"] + row["canonical_solution"])


def without_imports(code: str, module: str = "") -> str:
    return re.sub(rf"^(?:import|from) {module}.*\n", "", code, flags=re.MULTILINE)


def with_usage(row: Row) -> str:
    """A fence with calls that is longer than the one with the function."""
    call = f"print({row['entry_point']}())\n"
    calls = call * (len(whole(row)) // len(call) + 2)
    return f"{fenced(whole(row))}\nYou can use it like this:\n{fenced(calls)}"


def entry_only(row: Row) -> str | None:
    """The imports and the wanted function, without the helpers that some prompts define before it."""
    preamble = before_definition(row["prompt"], {row["entry_point"]})
    imports = "".join(re.findall(r"^(?:import|from) .*\n", preamble, re.MULTILINE))
    return fenced(imports + whole(row)[len(preamble) :]) if "def " in preamble else None


def code(row: Row) -> str:
    return str(row["code"])


SUITES = {
    "gsm8k": Suite(
        lambda folder: GSM8K(data=str(folder / "gsm8k_test.jsonl")),
        numbers(
            r"\boxed{N}",
            r"\boxed{N,NNN}",
            r"\boxed{\$N}",
            r"\boxed{$N.00}",
            r"\boxed{N \text{ dollars}}",
            r"\boxed{N\%}",
            r"\boxed{x = N}",
            r"\boxed{\text{N}}",
            r"\boxed{N} per day for 7 days",
            r"\boxed{N",
            r"\[ \boxed{N} \]",
            r"\fbox{N} in 3 steps",
            "\\boxed{18}\nHowever: \\boxed{N apples}",
            r"\boxed{N\text{ (in 2020)}}",
            r"\boxed{\frac{N}{1}}",
            r"\boxed{N/1}",
            "#### N",
            "#### N,NNN",
            "#### $N,NNN",
            "#### 5 (an example)\n#### N",
            "The total is N,NNN.",
            "The answer is: N",
        )  # fmt: skip
        | {
            r"\boxed{N{,}NNN}": separated("{,}"),
            r"\boxed{N\,NNN}": separated(r"\,"),
            r"\boxed{N} with a minus sign": lambda row: number(r"\boxed{N}")(row).replace("-", "\N{MINUS SIGN}"),
            "It costs $N,NNN.00 in total.": dollars,
            "the gold answer itself": lambda row: str(row["answer"]),
        },
    ),
    "humaneval": Suite(
        lambda folder: HumanEval(data=str(folder / "HumanEval.jsonl")),
        {
            "fenced function": lambda row: fenced(whole(row)),
            "body": lambda row: str(row["canonical_solution"]),
            "fenced body": lambda row: fenced(row["canonical_solution"]),
            "fenced function, no imports": lambda row: fenced(without_imports(whole(row))),
            "fenced function, no typing imports": lambda row: fenced(without_imports(whole(row), "typing ")),
            "fenced function, longer usage fence": with_usage,
            "fence not closed": lambda row: f"```python\n{whole(row)}",
            "```py": lambda row: fenced(whole(row), "py"),
            "```Python": lambda row: fenced(whole(row), "Python"),
            "fenced entry point, no helpers": entry_only,
        },
    ),
    "humaneval style=completion": Suite(
        lambda folder: HumanEval(data=str(folder / "HumanEval.jsonl"), style="completion"),
        {
            "body": lambda row: str(row["canonical_solution"]),
            "body, more behind": lambda row: row["canonical_solution"] + "\ndef other(",
        },
    ),
    "mbpp": Suite(
        lambda folder: MBPP(data=str(folder / "mbpp.jsonl")),
        {"fenced": lambda row: fenced(code(row)), "unfenced": code},
    ),
    "mbpp style=completion": Suite(
        lambda folder: MBPP(data=str(folder / "mbpp.jsonl"), style="completion", shots=3),
        {"code": code, "code [DONE]": lambda row: f"{code(row)}\n[DONE]\n\nYou are an expert"},
    ),
    "mbpp_sanitized split=all": Suite(
        lambda folder: MBPPSanitized(data=str(folder / "sanitized-mbpp.json"), split="all"),
        {"fenced": lambda row: fenced(code(row)), "unfenced": code},
    ),
}


@cache
def samples(folder: Path, suite: str) -> tuple[Task, list[Sample]]:
    """Once per worker process: a task tries its sandbox before it takes replies."""
    task = SUITES[suite].task(folder)
    task.prepare(allow_code_execution=True)
    return task, task.samples(None)


def check(job: tuple[Path, str, int]) -> list[Verdict]:
    """One gold answer in all its ways."""
    folder, suite, index = job
    task, rows = samples(folder, suite)
    sample = rows[index]
    replies = {way: write(sample.record) for way, write in SUITES[suite].ways.items()}
    return [(suite, way, sample.id, task.score(sample, reply)) for way, reply in replies.items() if reply is not None]


def table(verdicts: Iterable[Verdict]) -> dict[str, dict[str, Row]]:
    totals: dict[str, dict[str, Row]] = {}
    for suite, way, name, score in verdicts:
        row = totals.setdefault(suite, {}).setdefault(way, {"total": 0, "fixed": 0, "paper": 0, "failed": {}})
        row["total"] += 1
        for protocol in ("fixed", "paper"):
            row[protocol] += score.measures[protocol][0]
        if not score.correct:
            row["failed"][name] = f"{score.detail['status']}: {EXPLAINED.get(name, UNEXPLAINED)}"
    return totals


def printed(totals: dict[str, dict[str, Row]]) -> str:
    lines = [f"{'':28}{'':46}{'fixed':>12}{'paper':>12}"]
    for suite, ways in totals.items():
        for way, row in ways.items():
            fixed, paper = (f"{row[protocol]}/{row['total']}" for protocol in ("fixed", "paper"))
            lines.append(f"{suite:28}{way:46}{fixed:>12}{paper:>12}")
            lines += [f"    {name}: {why}" for name, why in row["failed"].items()]
    return "\n".join(lines)


def has_unexplained(totals: dict[str, dict[str, Row]]) -> bool:
    rows = [row for ways in totals.values() for row in ways.values()]
    return any(why.endswith(UNEXPLAINED) for row in rows for why in row["failed"].values())


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the published files")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes (default: one per core)")
    parser.add_argument("--every", type=int, default=1, metavar="K", help="only every K-th problem")
    args = parser.parse_args(argv)
    begin = time.monotonic()
    try:
        sizes = {suite: len(samples(args.data, suite)[1]) for suite in SUITES}
    except S2D2Error as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    jobs = [(args.data, suite, index) for suite, size in sizes.items() for index in range(0, size, args.every)]
    with ProcessPoolExecutor(args.jobs) as pool:
        found = pool.map(check, jobs, chunksize=4) if args.jobs > 1 else map(check, jobs)
        totals = table(chain.from_iterable(found))
    seconds = round(time.monotonic() - begin, 1)
    print(json.dumps({"tasks": totals, "seconds": seconds}) if args.json else f"{printed(totals)}\n{seconds} s")
    return int(has_unexplained(totals))


if __name__ == "__main__":
    sys.exit(main())
