"""Is this driver still wanted, and why did it fail.

Imports checkpoint and storage. Writes nothing.
"""
