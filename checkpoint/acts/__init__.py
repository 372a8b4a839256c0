"""Acts on an epoch: trigger, claims, acknowledgements, completion, failover, resume, and interventions of people.

An act reads the head, ends what is overdue, asks the rules, and swaps the head or writes a document. The other files
are parts of acts: their base, opening an attempt with what it carries over, assembling a checkpoint.
Acts import sources and all rooms below, and know nothing of savepoints, listeners and views.
"""
