"""Output and questions of the command: tables, figures, texts as wide as the terminal, the next command to type.

Imports checkpoint and storage. Never writes a store.
"""
