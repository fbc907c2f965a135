"""Runs: evaluate a configuration, sweep over many, keep them on disk, report on them."""
