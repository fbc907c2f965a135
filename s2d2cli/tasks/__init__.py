"""Benchmarks: importing this package registers every task."""
