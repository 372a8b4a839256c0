"""The command line: its verbs, their options, and the function that runs each.

Imports the commands. Never runs one.
"""
