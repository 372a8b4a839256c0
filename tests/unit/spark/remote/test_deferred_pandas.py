"""PySpark's client gets pandas when it first uses it; everybody else gets pandas itself."""

import subprocess
import sys

import pytest

START = """
import pickle, sys, threading
from airflow_cairn.spark.remote.deferred_pandas import pandas_when_used
{before}
with pandas_when_used():
    {inside}
{after}
"""
NAMES = """import pandas as pd
    from pandas.api.types import is_datetime64_dtype
    assert pd.__version__.count('.') >= 2
    def shown() -> "pd.DataFrame | None": ...
    class Shown:
        frame: pd.DataFrame"""
UNLOADED = "assert 'pandas' not in sys.modules and 'pandas.api.types' not in sys.modules"
THREADS = """found = []
each = [threading.Thread(target=lambda: found.append(pd.DataFrame)) for _ in range(8)]
[one.start() for one in each], [one.join() for one in each]"""
REAL = "import pandas; assert type(pandas).__name__ == 'module'"


@pytest.mark.parametrize(
    ("before", "inside", "after"),
    [
        ("", NAMES, f"{UNLOADED}\n{REAL}\nassert pd.DataFrame is pandas.DataFrame and type(pd) is not type(pandas)"),
        (
            "",
            NAMES,
            f"assert not is_datetime64_dtype(int)\n{REAL}\nassert isinstance(pandas.DataFrame(), pd.DataFrame)",
        ),
        ("", NAMES, f"pd.flag = 1\n{REAL}\nassert pandas.flag == 1"),
        ("", NAMES, f"{REAL}\nassert pickle.loads(pickle.dumps(pd)) is pandas"),
        ("", "import pandas.testing as found", f"{REAL}\nassert found is pandas.testing"),
        ("", "from pandas.api.types import is_bool_dtype as found", f"{REAL}\nassert found(bool)"),
        ("import pandas as first", "import pandas as pd", "assert pd is first"),
        ("", NAMES, f"{THREADS}\n{REAL}\nassert found == [pandas.DataFrame] * 8"),
        ("sys.modules['pandas'] = None", "pass", "assert sys.modules['pandas'] is None"),
        ("sys.meta_path.clear()", "pass", UNLOADED),
    ],
)
def test_it_is_loaded_when_it_is_used(before: str, inside: str, after: str) -> None:
    program = START.format(before=before, inside=inside, after=after)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
