"""What the command prints: tables, figures and texts as wide as the terminal.

Imports checkpoint and storage. Never asks a person and never writes a store.
"""
