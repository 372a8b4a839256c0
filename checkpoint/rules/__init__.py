"""The protocol as pure functions: they take a version of the head, facts and the time, and return a head or a verdict.

Rules import documents and the plain values beside this folder. They never read or write a store.
"""
