"""What a failure counts for, when the next try may begin, and which stages run again with it.

Pure functions over documents. Never reads or writes a store.
"""
