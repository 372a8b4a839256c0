"""Brings a fresh machine to where the targets of the Makefile can run; Python's standard library only.

One module a thing: `uv`, `venv`, `java`, `s3server`. Each has one function that makes sure the thing is there and says
where; a second call finds it and returns at once. What cannot be done ends in one line that says what to type.
"""
