"""A storage that is away for some requests: a rule of the proxy that does not ask which they are."""

from __future__ import annotations

from dataclasses import dataclass

from tests.support.s3_proxy import Action, Request, Rule, answer, lose_the_answer, lose_the_request

HOW: dict[str, Action] = {
    "answer lost": lose_the_answer,
    "cut": lose_the_request,
    "503": answer(503, "SlowDown"),
}


@dataclass
class Outage(Rule):
    """Strikes a number of requests in a row, after it has let some pass."""

    passes: int = 0

    def fits(self, request: Request) -> bool:
        """Tell whether this request is struck."""
        if self.passes > 0:
            self.passes -= 1
            return False
        return self.times > 0


def outage(how: str, request: int, times: int) -> Outage:
    """Make one.

    Args:
        how: `answer lost`, `cut` or `503`.
        request: the first that is struck, from 1.
        times: how many are.
    """
    return Outage("", "", HOW[how], times, request - 1)
