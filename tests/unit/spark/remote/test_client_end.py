"""How the client's process ends when all is done: at once, and with everything done that a Python program expects."""

from __future__ import annotations

import os
import subprocess
import sys

ENDING = """
import atexit, logging, sys, threading, weakref
from logging.handlers import MemoryHandler
from airflow_cairn.spark.remote.client import end_at_once

class Kept:
    pass

kept = Kept()
weakref.finalize(kept, print, "finalized")
late = MemoryHandler(1000, target=logging.StreamHandler(sys.stdout))
logging.getLogger("late").addHandler(late)
logging.getLogger("late").warning("logged")
atexit.register(print, "at exit")
go_on = threading.Event()
def work():
    go_on.wait()
    print("thread ended")
threading.Thread(target=work).start()
class Loud:
    def __del__(self):
        sys.__stdout__.write("taken apart")
loud = Loud()
loud.itself = loud
print("no line end", end=" ")
atexit.register(end_at_once)
go_on.set()
"""


BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


def test_it_waits_for_threads_and_runs_what_waits_for_the_exit() -> None:
    command = [sys.executable, "-c", ENDING]
    done = subprocess.run(command, env=BUFFERED, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["no line end thread ended", "at exit", "finalized", "logged"]


def test_output_that_nobody_takes_is_an_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    code = "import atexit; from airflow_cairn.spark.remote.client import end_at_once\n"
    code += "print('lost'); atexit.register(end_at_once)"
    with open(writing, "wb") as lost:
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, env=BUFFERED, stdout=lost, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 120, "Python's own status where the last output cannot be written"
