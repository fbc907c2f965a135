"""Three synthetic problem families in the file formats of GSM8K, MBPP and IFEval; all texts are our own."""

from . import functions, instructions, word_problems
from .problem import Generator, Problem, draw, held_out_set, is_held_out

FAMILIES: dict[str, Generator] = {
    "math": word_problems.generate,
    "code": functions.generate,
    "instruct": instructions.generate,
}

__all__ = ["FAMILIES", "Generator", "Problem", "draw", "held_out_set", "is_held_out"]
