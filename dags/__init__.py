"""Example DAGs, each runnable; `make demo` runs `flights`."""
