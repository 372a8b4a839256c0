"""Runs by a cell's own Python, where Cairn is installed: imports what Airflow imports, and parses DAG files.

python airflow_facts.py FOLDER…: prints one line of JSON, and the traceback of the first module that does not import.
"""

import importlib
import json
import pkgutil
import sys
from importlib.metadata import version

from airflow.dag_processing.dagbag import DagBag

ROOMS = ("storage", "checkpoint", "hooks", "tasks", "launchers", "triggers", "sensors", "operators", "plugin", "cli")

modules: list[object] = []
for room in ROOMS:
    package = importlib.import_module(f"airflow_cairn.{room}")
    inside = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    modules.extend(importlib.import_module(module.name) for module in inside)
bags = [DagBag(dag_folder=folder, safe_mode=False) for folder in sys.argv[1:]]
found = {
    "airflow": version("apache-airflow"),
    "python": ".".join(map(str, sys.version_info[:2])),
    "pyspark": version("pyspark"),
    "from": importlib.import_module("airflow_cairn").__file__,
    "modules": len(modules),
    "dags": sorted(name for bag in bags for name in bag.dags),
    "errors": {file: error for bag in bags for file, error in bag.import_errors.items()},
}
print("FOUND", json.dumps(found))
