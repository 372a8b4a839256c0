"""What the command prints and asks: tables, figures, texts as wide as the terminal, and what to type next.

Imports checkpoint and storage. Never writes a store.
"""
