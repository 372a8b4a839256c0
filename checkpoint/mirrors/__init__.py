"""Mirrors: copies of a job in another storage, kept by passes, and activated on the day the first one is away.

Imports savepoints and the cleaner, and all below. Never writes to an activated mirror.
"""
