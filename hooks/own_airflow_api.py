"""Airflow's API, asked in the API server's own process, as the user whose request is being answered.

So Airflow itself asks for that user's rights, checks what is sent, and writes its own audit log. No address, no
connection and no password are needed. The hook is used on another thread than the server's loop.
"""

from __future__ import annotations

import asyncio
from functools import cached_property
from typing import Any

import httpx

from .airflow_api import TIMEOUT_S, AirflowApiError, AirflowApiHook, AirflowApiRefusedError, detail_of
from .airflow_api_access import ApiAccess

_HOST = "http://airflow"
"""In no answer; a request has to have one."""


class OwnAirflowApi(AirflowApiHook):
    """Speaks to the API of this process.

    Args:
        app: Airflow's app, as ASGI.
        root_path: below which the app answers; empty or with a leading slash.
        token: the user's.
        loop: the app's.
    """

    def __init__(self, app: Any, root_path: str, token: str, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__("of this API server")
        self._app = app
        self._root_path = root_path
        self._user_token = token
        self._loop = loop

    @cached_property
    def access(self) -> ApiAccess:
        """Who asks."""
        return ApiAccess(self.airflow_api_conn_id, f"{_HOST}{self._root_path}", token=self._user_token)

    @cached_property
    def _http(self) -> httpx.Client:
        # What goes wrong in a route of Airflow's is an answer with the status 500, as from another process.
        own = httpx.ASGITransport(self._app, raise_app_exceptions=False, root_path=self._root_path)
        transport = _InProcess(own, self._loop)
        return httpx.Client(base_url=self.access.base_url, transport=transport, follow_redirects=False)

    def _refused(self, answer: httpx.Response, why: str) -> AirflowApiRefusedError:  # noqa: ARG002 - of a connection
        return AirflowApiRefusedError(_said(answer), **self._facts(answer))

    def _unexpected(self, answer: httpx.Response) -> AirflowApiError:
        return AirflowApiError(_said(answer), **self._facts(answer))

    def _unreachable(self, error: httpx.HTTPError) -> AirflowApiError:
        text = f"the API server has not answered its own question ({type(error).__name__}: {error})"
        return AirflowApiError(text, airflow_api_conn_id=self.airflow_api_conn_id)


def _said(answer: httpx.Response) -> str:
    """Give Airflow's own words: advice about a connection would mislead where there is none."""
    if answer.is_success:
        return "Airflow's answer is not what was expected. Look into the API server's log"
    return f"Airflow answers {answer.status_code}: {detail_of(answer)}"


class _InProcess(httpx.BaseTransport):
    """Carries a request from a thread to the loop on which the app runs."""

    def __init__(self, transport: httpx.ASGITransport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send it, and wait for the whole answer."""
        sent = asyncio.run_coroutine_threadsafe(self._answer(request), self._loop)
        try:
            return sent.result(TIMEOUT_S)
        except TimeoutError as error:
            sent.cancel()
            raise httpx.ReadTimeout("the API server has not answered in time", request=request) from error

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        answer = await self._transport.handle_async_request(request)
        # As it was sent, because the headers say how it is compressed.
        sent = b"".join([part async for part in answer.aiter_raw()])
        return httpx.Response(answer.status_code, headers=answer.headers, content=sent)
