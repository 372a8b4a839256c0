"""A stage whose dbt model merges into an Iceberg table by its own name, which is a branch for the time of the block.

The name of this file does not begin with `dbt_`: dbt would import it as a plugin, and so run it.
"""

import sys
from pathlib import Path

from dbt.cli.main import dbtRunner

from airflow_cairn import Epoch

MODEL = """
{{ config(
    materialized='incremental', incremental_strategy='merge', unique_key='id', file_format='iceberg',
    full_refresh=false
) }}
select id, concat('dbt ', {{ var('number') }}) as note from range({{ var('number') }}, {{ var('number') }} + 2)
"""
PROFILE = "{type: spark, method: session, host: none, schema: sales, threads: 1}"

with Epoch.current() as epoch, epoch.branch("orders", wap=True):
    project = Path("dbt")
    (project / "models").mkdir(parents=True, exist_ok=True)
    (project / "models" / "orders.sql").write_text(MODEL)
    (project / "profiles.yml").write_text(f"lake: {{target: stage, outputs: {{stage: {PROFILE}}}}}")
    (project / "dbt_project.yml").write_text("{name: lake, profile: lake, flags: {send_anonymous_usage_stats: false}}")
    folders = ("--project-dir", str(project), "--profiles-dir", str(project))
    done = dbtRunner().invoke(["run", *folders, "--vars", f"{{number: {sys.argv[1]}}}"])
    assert done.success, done
