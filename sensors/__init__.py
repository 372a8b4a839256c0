"""Waiting for a checkpoint."""

from .checkpoint import CheckpointSensor

__all__ = ["CheckpointSensor"]
