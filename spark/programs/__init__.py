"""Programs that know nothing of Cairn: the places in their arguments, and the acknowledgement in their name.

Imports all below, and knows nothing of how a program is started. Runs in the operator, without Spark.
"""
