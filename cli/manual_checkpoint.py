"""`cairn checkpoint`: requests a checkpoint now. An epoch is a DAG run, so the command has Airflow create a run.

The run's id is made from the request's, so a repeated request creates one run: Airflow refuses an existing id.
"""

from __future__ import annotations

import argparse
import os

from ..checkpoint import system_runtime
from ..checkpoint.errors import InvalidConfigError
from ..storage.names import check_name
from .airflow_api import TOKEN, AirflowApi
from .commands import Outcome


def checkpoint(options: argparse.Namespace) -> Outcome:
    """Request a checkpoint of a job now, with a DAG run of the type manual (semantics T2, T3).

    Raises:
        InvalidConfigError: the URL is invalid, the token is missing, or the window has no length.
        InvalidKeyError: the request's id is outside the grammar (semantics W1).
        RefusedError: Airflow has no such DAG, or the DAG is paused.
        AirflowApiRefusedError: Airflow refuses the token, or the token lacks the right.
        AirflowApiError: Airflow could not be reached, or its answer cannot be used.
    """
    job, dag_id, runtime = options.job, options.dag or options.job, system_runtime()
    request = runtime.new_token() if options.request_id is None else options.request_id
    run_id = f"cairn__{check_name('request', request)}"
    if options.window is not None and options.window[0] >= options.window[1]:
        raise InvalidConfigError("the first moment of --window is to be before the second", window=options.window)
    api = AirflowApi(options.airflow_url, os.environ.get(TOKEN))
    api.check_runs(job, dag_id)
    if options.request_id is None:
        options.made_up_id = request
    created = api.start_run(dag_id, run_id, runtime.now_ms(), options.window, again=options.read_again)
    line = f"the DAG run {run_id} of {dag_id} is there already: nothing was asked anew"
    if created:
        asked = f"asked for a checkpoint of {job}: DAG run {run_id} of {dag_id}"
        line = f"{asked}. It comes before those of the schedule, and waits for no pause"
    return Outcome([line], {"job": job, "dag": dag_id, "run": run_id, "request": request, "created": created})
