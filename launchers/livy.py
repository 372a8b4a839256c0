"""Livy's batches, over `LivyOperator` and its hook.

The token is the end of the batch's name, which Livy lists. No field of it refuses a second submission: the claim allows
one. Livy forgets a batch that has ended after `livy.server.session.state-retain.sec`, and all of them when it starts
anew without `livy.server.recovery.mode`. A batch that it does not know counts as gone, as a driver that a cluster does
not know does: were it to live on, it could not acknowledge.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowException

from ..checkpoint.errors import InvalidConfigError
from ..hooks.spark_submit import YARN_DEFAULTS
from .launcher import ANSWER_S, DriverState, HandedOver, Launcher, on_pages

if TYPE_CHECKING:
    from airflow.providers.apache.livy.operators.livy import LivyOperator

ENDED = frozenset({"success", "dead", "killed", "error"})
"""The states of a batch that has ended. In any other state, also one that a later Livy adds, the batch lives."""

PAGE = 100
NOT_FOUND = 404


class LivyLauncher(Launcher):
    """Starts batches."""

    service = "Livy batch"

    missing = "Livy has no driver of this execution: it was not submitted, or has ended without acknowledging"
    asks_with = ("_livy_conn_id", "_livy_conn_auth_type", "_livy_endpoint_prefix", "_extra_options", "_extra_headers")

    _operator: LivyOperator

    @property
    def conf(self) -> object:
        return self._operator.spark_params["conf"]

    @property
    def arguments(self) -> object:
        return self._operator.spark_params["args"]

    def check(self) -> None:
        """Check the author's options.

        Raises:
            InvalidConfigError: see `Launcher`.
        """
        if self._operator.spark_params["name"] is not None:
            raise InvalidConfigError(
                "name is set by Cairn, which finds the batch by it: remove it from the stage",
                task=self._operator.task_id,
            )
        if self._operator.deferrable and (self._operator._extra_headers or self._operator._livy_conn_auth_type):
            raise InvalidConfigError(
                "extra_headers and livy_conn_auth_type may be secrets, which are not handed to the triggerer: put "
                "headers into the extra of the Livy connection, or set deferrable=False",
                task=self._operator.task_id,
            )

    def hand_over(self, handed: HandedOver) -> None:
        given = self._operator.spark_params
        author: Mapping[str, Any] = given["conf"] or {}
        self._operator.spark_params = {
            **given,
            "conf": {**YARN_DEFAULTS, **handed.defaults, **author, **handed.conf},
            "py_files": [*(given["py_files"] or ()), *handed.code],
            "name": handed.name,
        }
        # It would wait in its own ways, one of which takes up a batch of any earlier try.
        self._operator.deferrable, self._operator._polling_interval = False, 0

    def run_instead(self, program: str, arguments: Sequence[str]) -> None:
        self._operator.spark_params = {
            **self._operator.spark_params,
            "file": program,
            "class_name": None,
            "args": [*arguments],
        }

    def find(self, tokens: Sequence[str]) -> dict[str, str]:
        """Return the batches that Livy knows, ended ones too."""
        found: dict[str, str] = {}
        for page in self._pages() if tokens else ():
            for batch in reversed(page):
                token = str(batch.get("name") or "").rpartition("-")[2]
                if token in tokens:
                    found.setdefault(token, str(batch["id"]))
            if len(found) == len(tokens):
                break
        return found

    def listed(self, drivers: Collection[str]) -> dict[str, DriverState]:
        return on_pages(drivers, self._pages(), "id", _state_of)

    def _pages(self) -> Iterator[list[dict[str, Any]]]:
        """Yield pages of batches from the end: the newest stand there.

        Livy forgets old ones at any moment, which moves the others forward. On the way to the front none is passed by.
        """
        begin = int(self._ask("GET", "/batches?from=0&size=1")["total"])
        while begin > 0:
            end, begin = begin, max(0, begin - PAGE)
            yield self._ask("GET", f"/batches?from={begin}&size={end - begin}")["sessions"]

    def state(self, driver: str) -> DriverState:
        batch = self._ask("GET", f"/batches/{int(driver)}", missing_ok=True)
        if not batch:
            return DriverState("unknown to Livy", lives=False)
        return _state_of(batch)

    def cancel(self, driver: str) -> None:
        self._ask("DELETE", f"/batches/{int(driver)}", missing_ok=True)

    def logs(self, driver: str) -> Iterable[str]:
        """Return the last lines of the output of Livy's spark-submit."""
        lines: list[str] = self._ask("GET", f"/batches/{int(driver)}/log?from=-1&size={PAGE}")["log"]
        return lines

    def _ask(self, method: str, path: str, *, missing_ok: bool = False) -> dict[str, Any]:
        """Ask by the provider's hook, for its connection, headers and prefix; empty for an absent batch."""
        hook = self._operator.hook
        hook.extra_options = {"timeout": ANSWER_S, **(hook.extra_options or {"check_response": False})}
        response = hook.run_method(f"{hook.endpoint_prefix}{path}", method, headers=hook.extra_headers)
        if missing_ok and response.status_code == NOT_FOUND:
            return {}
        if not response.ok:
            raise AirflowException(f"Livy answered {response.status_code} to {method} {path}: {response.text[:200]}")
        answer: dict[str, Any] = response.json()
        return answer


def _state_of(batch: Mapping[str, Any]) -> DriverState:
    word, more = str(batch["state"]), batch.get("appInfo") or {}
    return DriverState(word, word not in ENDED, word == "success", more.get("sparkUiUrl") or "")
