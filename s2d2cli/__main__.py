"""`python -m s2d2cli` is `s2d2`."""

from s2d2cli.cli import main

main()
