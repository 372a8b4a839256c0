"""Events of a trigger, outside of a triggerer."""

from __future__ import annotations

import asyncio
from typing import Any

from airflow.triggers.base import TriggerEvent

from airflow_cairn.triggers.polling import PollingTrigger


async def event_of(trigger: PollingTrigger) -> TriggerEvent:
    """Run a trigger to its end; gives its one event."""
    (event,) = [each async for each in trigger.run()]
    return event


def payload(trigger: PollingTrigger) -> dict[str, Any]:
    """Run a trigger to its end in a loop of its own; gives the payload of its one event."""
    found: dict[str, Any] = asyncio.run(asyncio.wait_for(event_of(trigger), 300)).payload
    return found
