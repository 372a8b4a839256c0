"""Shared parts of the benchmarks: they run, time, record and draw."""
