"""What the command takes: its verbs, their options, and what runs each.

Imports the commands. Never runs one.
"""
