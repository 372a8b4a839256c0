"""`make demo`: the flights pipeline in a real Airflow, with a Spark driver killed in the middle."""
