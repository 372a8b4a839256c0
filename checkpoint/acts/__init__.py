"""Acts on an epoch, one file each: trigger, claim, acknowledge, complete, fail over, resume, restore, rewind.

An act reads the head, asks the rules, and swaps the head or writes a document. Acts import sources and all rooms below,
and know nothing of savepoints, listeners and views.
"""
