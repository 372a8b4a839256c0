"""Examples to copy, one DAG a file; docs/how-to/examples.md shows them."""
