"""`python -m s2d2cli.lm_eval`: lm-eval's own command line, with the model `s2d2`."""

from __future__ import annotations

import sys
from importlib import import_module

from s2d2cli.errors import S2D2Error


def main() -> None:
    try:
        import_module("s2d2cli.lm_eval.model")
        import_module("lm_eval.__main__").cli_evaluate()
    except S2D2Error as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
