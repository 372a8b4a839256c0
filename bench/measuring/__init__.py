"""What several benchmarks share: how a thing is run, timed, written down and drawn."""
