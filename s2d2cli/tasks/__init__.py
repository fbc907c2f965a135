"""Benchmarks: importing this package registers every task."""

from s2d2cli.tasks import gsm8k as gsm8k
from s2d2cli.tasks import humaneval as humaneval
from s2d2cli.tasks import ifeval as ifeval
from s2d2cli.tasks import jsonl as jsonl
from s2d2cli.tasks import mbpp as mbpp
