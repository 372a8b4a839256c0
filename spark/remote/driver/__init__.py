"""The acts of a server's driver at each look, beside serving: it watches sessions, and ends their leftovers."""
