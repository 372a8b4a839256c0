"""An event loop whose clock a test moves, for what waits."""

from __future__ import annotations

import asyncio


class SkippingLoop(asyncio.SelectorEventLoop):
    """Event loop whose clock runs on as usual; `ahead_s` is added to it."""

    ahead_s = 0.0

    def time(self) -> float:
        """Give the seconds of its clock."""
        return super().time() + self.ahead_s
