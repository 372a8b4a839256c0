"""A process that works on a store, and on a local one can be stopped at any step: started by `test_local_processes.py`.

    python local_worker.py <root> stop <step> create|replace <key> <data> [<etag>]
    python local_worker.py <root> race <key> <number of writes>
    python local_worker.py <root> count <key> <increments>
    python local_worker.py <root> churn <folder> <number of objects>

`stop` prints the step when it stands there and then waits to be killed. The others wait for a line on stdin to start.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable

from airflow_cairn.storage import AzureOptions, ConditionFailed, ObjectStore, Written, open_store
from airflow_cairn.storage.local.store import LocalStore


def opened(root: str) -> ObjectStore:
    emulator = os.environ.get("CAIRN_AZURE_EMULATOR")
    azure = AzureOptions(emulator) if emulator else None
    return open_store(root, azure=azure) if "://" in root else LocalStore(root)


def stop(root: str, at: str, verb: str, key: str, data: str, etag: str = "") -> None:
    def step(name: str) -> None:
        if name == at:
            print(name, flush=True)
            threading.Event().wait()

    store = LocalStore(root, step=step)
    if verb == "create":
        store.create(key, data.encode())
    else:
        store.replace(key, data.encode(), expected_etag=etag)
    print("never stood there", flush=True)


def race(root: str, key: str, number: str) -> None:
    """Create `key-<n>`, then swap it once: prints which of both were won."""
    store = opened(root)
    print("ready", flush=True)
    me = sys.stdin.readline().strip()
    won: list[str] = []
    for n in range(int(number)):
        name = f"{key}-{n}"
        if isinstance(store.create(name, b"made"), Written):
            won.append(f"create {n}")
    tags = [store.get(f"{key}-{n}").etag for n in range(int(number))]
    print("ready", flush=True)
    sys.stdin.readline()
    for n in range(int(number)):
        answer = store.replace(f"{key}-{n}", f"swapped by {me}".encode(), expected_etag=tags[n])
        won += [f"swap {n}"] if isinstance(answer, Written) else []
    print(json.dumps(won), flush=True)


def count(root: str, key: str, increments: str) -> None:
    """Add one to a number `increments` times, by compare-and-swap."""
    store = opened(root)
    print("ready", flush=True)
    sys.stdin.readline()
    for _ in range(int(increments)):
        while True:
            blob = store.get(key)
            answer = store.replace(key, str(int(blob.data) + 1).encode(), expected_etag=blob.etag)
            if not isinstance(answer, ConditionFailed):
                break
    print("done", flush=True)


def churn(root: str, folder: str, number: str) -> None:
    """Create an object in a folder and delete it again, so that the folder comes and goes."""
    store = opened(root)
    print("ready", flush=True)
    me = sys.stdin.readline().strip()
    for n in range(int(number)):
        key = f"{folder}/deep/{me}-{n}"
        assert isinstance(store.create(key, b"x"), Written)
        assert store.get(key).data == b"x"
        assert store.delete([key]) == []
    print("done", flush=True)


if __name__ == "__main__":
    root, verb, *rest = sys.argv[1:]
    verbs: dict[str, Callable[..., None]] = {"stop": stop, "race": race, "count": count, "churn": churn}
    verbs[verb](root, *rest)
