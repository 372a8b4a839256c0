"""A real Airflow for one benchmark: local Spark, the connection to its own API, and one DAG file with its facts."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scripts.harness.airflow_home import USERNAME, AirflowHome


def airflow_for(folder: Path, dag_file: Path, facts: Mapping[str, object], cores: int, **options: Any) -> AirflowHome:
    """Prepare an Airflow; `with` starts it, and its DAG file is parsed some time afterwards.

    The DAG file reads the facts, as JSON, from the variable `CAIRN_BENCH`.
    """
    env = {
        "CAIRN_BENCH": json.dumps(facts),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": f"local[{cores}]"}),
    }
    home = AirflowHome(folder / "airflow", env=env, **options)
    to_api = {"conn_type": "http", "host": home.url, "login": USERNAME, "password": home.password}
    home.add_env("AIRFLOW_CONN_CAIRN_AIRFLOW_API", json.dumps(to_api))
    shutil.copy(dag_file, home.dags_folder)
    return home
