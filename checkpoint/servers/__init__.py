"""Which Spark server a job's stages share: the record, and who may start, replace and end one.

Imports documents. Never reads or writes a store, and decides nothing about checkpoints.
"""
