"""Kinds of state that are not a DataFrame: lists, small JSON values, raw files.

Imports output and all below.
"""
