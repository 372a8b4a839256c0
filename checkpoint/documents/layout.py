"""Layout of a job's objects below the storage root; the only module that builds keys.

Ids are written with ten digits, so that names sort in the order of their ids. A key is relative to the job's prefix
(semantics W5); `JobFiles` puts the prefix before it, so that `job-1` never touches `job-10` (semantics W1). The checks
of names, keys and addresses that a document holds are here too.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection

from ...storage.errors import InvalidKeyError
from ...storage.names import NAME_GRAMMAR, check_key, check_name, shorten
from ..errors import DocumentError

HEAD = "head.json"
EPOCHS = "epochs/"
EPOCH_LISTS = "epoch-lists/"
"""Sorts right behind the folders of the checkpoints, so that one listing shows both."""
CHECKPOINT = re.compile(r"\Achk-([0-9]{10})\Z")
OUTPUT_ID_GRAMMAR = r"\A[a-z]{1,32}\." + NAME_GRAMMAR.removeprefix(r"\A")
"""Form of `Output.id`: the kind, a dot, the name."""
_OUTPUT_ID = re.compile(OUTPUT_ID_GRAMMAR)
_TOKEN = re.compile(r"\A[A-Za-z0-9_]{1,64}\Z")
_PLAIN = re.compile(rb"[A-Za-z0-9_-]")
_MAX_PART = 200
"""Maximum length of a part of a key that is made from a name: file systems take 255 bytes, suffixes included."""
REQUEST_GRAMMAR = r"\A[^\u0000-\u001f\u007f]{1,500}\Z"
"""Form of a savepoint's request id."""
HOST_GRAMMAR = r"\A(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?|[0-9A-Fa-f]*:[0-9A-Fa-f:.]{1,44})\Z"
"""A name or an address of a machine."""
TARGET_GRAMMAR = r"\A(s3|gs|abfss|file)://[^\u0000-\u001f\u007f]+\Z"
"""Form of a savepoint's target in a document."""
PARTITION_GRAMMAR = r"\A[A-Za-z0-9_.-]{0,80}-(?:[0-9A-F]{1,16}|[0-9A-F]{32})\Z"
"""Form of a file's partition: some of its values, and a hash of them; older names have a shorter hash."""
_PARTITION = re.compile(PARTITION_GRAMMAR)
_REQUEST = re.compile(REQUEST_GRAMMAR)
_HOST = re.compile(HOST_GRAMMAR)
_TARGET = re.compile(TARGET_GRAMMAR)
_RUN_BYTES = 17
"""Bytes of a driver's token, and of the `/` behind it."""
_WRITER_BYTES = 336
"""Bytes of the longest path that a committer makes below an output's folder: the magic one's, for a pending file of a
partition."""
_TABLE_LIST = "all.json"
"""Sorts before every file that Spark writes beside it."""
_MARKERS = frozenset({"acks", "declines", "failures", "handover"})
"""Folders of a checkpoint that hold a document for each execution, by stage."""
COMPACTOR = 0
"""Used instead of an attempt's number in folders of files written outside of an epoch (semantics K7)."""


def epoch_name(run_id: str) -> str:
    """Encode an Airflow run id as an epoch name (semantics W1): reversible up to 200 characters, unique beyond.

    Letters, digits, `_` and `-` stay; any other byte becomes `.` and two hex digits. A name that would not begin with
    a letter or a digit gets a `_` before it. A longer name is cut, and ends in `.h` and a hash of the whole run id.
    """
    whole = run_id.encode("utf-8", "surrogatepass")
    encoded = "".join(chr(byte) if _PLAIN.match(bytes([byte])) else f".{byte:02x}" for byte in whole)
    if not encoded[:1].isalnum():
        encoded = "_" + encoded
    return check_name("epoch", _cut(encoded, whole))


def import_epoch(checkpoint: int) -> str:
    """Give the name of the epoch of a checkpoint that was made from a savepoint; no run id is encoded like this."""
    return f"savepoint.import-{checkpoint}"


def _cut(part: str, whole: bytes) -> str:
    """Give a part of a key; a long one is cut and ends in a hash of the whole name, so that it stays unique."""
    if len(part) <= _MAX_PART:
        return part
    return f"{part[: _MAX_PART - 34]}.h{hashlib.sha256(whole).hexdigest()[:32]}"


def cut_part(name: str) -> str:
    """Give a name with room for a suffix, as a part of a key; a long one is cut and ends in a hash of the whole."""
    return _cut(name, name.encode())


def _part(kind: str, name: str) -> str:
    """Make a part of a key from a name, which is never read back from it."""
    return _cut(check_name(kind, name), name.encode())


def run_id_of(epoch: str) -> str:
    """Give the run id that `epoch_name` encoded, for display; a name that was cut comes back as it is."""
    if ".h" in epoch:
        return epoch
    body = epoch[1:] if epoch.startswith("_") else epoch
    raw = re.sub(rb"\.([0-9a-f]{2})", lambda match: bytes([int(match[1], 16)]), body.encode())
    try:
        return raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return epoch  # no name that `epoch_name` makes


def folder(checkpoint: int) -> str:
    """Give the folder of one checkpoint."""
    return f"chk-{checkpoint:010d}/"


def checkpoint_of(key: str) -> int | None:
    """Give the id of the checkpoint in whose folder `key` lies, None for a key elsewhere."""
    match = CHECKPOINT.match(key.split("/", 1)[0])
    return int(match[1]) if match else None


def epoch_slice(epoch: str) -> str:
    """Give the key of the epoch's fixed input slice (semantics T8)."""
    return f"{EPOCHS}{check_name('epoch', epoch)}.json"


def epoch_completed(epoch: str) -> str:
    """Give the key of the note that version 0.1 wrote for each epoch: which checkpoint completed it."""
    return f"{EPOCHS}completed/{check_name('epoch', epoch)}.json"


def completed_epochs(checkpoint: int, token: str) -> str:
    """Give the key of a list of completed epochs, in the folder of the next free id at the time of its writing."""
    return f"{folder(checkpoint)}epochs-{check_token(token)}.jsonl"


def epoch_of_slice(key: str) -> str | None:
    """Give the epoch whose fixed input slice lies at `key`; None for a key elsewhere."""
    name = key.removeprefix(EPOCHS)
    return name.removesuffix(".json") if key.startswith(EPOCHS) and name.endswith(".json") and "/" not in name else None


def epoch_list(epoch: str, source: str) -> str:
    """Give the key of a source's list of an epoch's input, if that is too long for the slice (semantics T8)."""
    return f"{EPOCH_LISTS}{check_name('epoch', epoch)}/{_part('source', source)}.jsonl"


def epoch_of_list(key: str) -> str | None:
    """Give the epoch whose list lies at `key`; None for a key elsewhere."""
    return key.split("/")[1] if key.startswith(EPOCH_LISTS) else None


def position_piece(checkpoint: int, source: str, token: str) -> str:
    """Give the key of a part of a source's position that is too long for the checkpoint's documents."""
    return f"{folder(checkpoint)}positions/{_part('source', source)}-{check_token(token)}.jsonl"


def pending(checkpoint: int, token: str) -> str:
    """Give the key of an attempt's document. The token separates racing triggers of one id (decision 0003)."""
    return f"{folder(checkpoint)}pending-{token}.json"


def hook_answers(home: int, token: str) -> str:
    """Give the key of the master hooks' answers, in the checkpoint whose trigger asked them (semantics T7)."""
    return f"{folder(home)}hooks-{token}.json"


def metadata(checkpoint: int, token: str, left_out: Collection[str] = ()) -> str:
    """Give the key of a completed checkpoint's metadata; it counts only once the head names it (semantics D3).

    Two processes that complete a checkpoint may see different stages lag and write different bytes, so the name depends
    on the stages left out (semantics B3, F6).
    """
    whole = f"{folder(checkpoint)}_metadata-{token}"
    if not left_out:
        return whole
    return f"{whole}-{hashlib.sha256(','.join(sorted(left_out)).encode()).hexdigest()[:16]}"


def whole_metadata(key: str) -> str:
    """Give the key that the metadata at `key` would have if no stage were left out; any other key as it is."""
    name = key.rpartition("/")[2]
    return "-".join(key.split("-")[:3]) if name.startswith("_metadata-") else key


def metadata_of(key: str) -> int | None:
    """Give the checkpoint whose metadata lies at `key`; None for a key elsewhere."""
    checkpoint = checkpoint_of(key)
    return checkpoint if checkpoint is not None and key.startswith(f"{folder(checkpoint)}_metadata-") else None


def ack_folder(home: int, stage: str) -> str:
    """Give the folder of a stage's acknowledgements, in the checkpoint that started the executions."""
    return f"{folder(home)}acks/{check_name('stage', stage)}/"


def ack(home: int, stage: str, token: str) -> str:
    """Give the key of an execution's acknowledgement."""
    return f"{ack_folder(home, stage)}{token}.json"


def ack_part(home: int, stage: str, token: str, run: str, part: int) -> str:
    """Give the key of a further part of an acknowledgement that is too large for one marker (semantics A6)."""
    return f"{ack_folder(home, stage)}{token}-{run}-{part:05d}.json"


def decline(home: int, stage: str, token: str) -> str:
    """Give the key of an execution's decline."""
    return f"{folder(home)}declines/{check_name('stage', stage)}/{token}.json"


def failure(home: int, stage: str, token: str) -> str:
    """Give the key of the operator's mark that an execution has failed and no try follows (semantics F6)."""
    return f"{folder(home)}failures/{check_name('stage', stage)}/{token}.json"


def handover(home: int, stage: str, token: str) -> str:
    """Give the key of the operator's handover to the application; created once, it is the claim to submit."""
    return f"{folder(home)}handover/{check_name('stage', stage)}/{token}.json"


def execution_folder(home: int, stage: str, attempt: int, token: str) -> str:
    """Give the folder with all files that one execution writes."""
    return f"{folder(home)}state/{check_name('stage', stage)}/{attempt}-{token}/"


def output_folder(home: int, stage: str, attempt: int, token: str, run: str, output: str) -> str:
    """Give the folder of one output of one driver; `run` separates two drivers of one execution."""
    return f"{execution_folder(home, stage, attempt, token)}{run}/{_cut(check_output_id(output), output.encode())}/"


def table_list(folder: str) -> str:
    """Give the key of the list of a growing table, in the folder of its newest epoch's files."""
    return f"{folder}{_TABLE_LIST}"


def manifest(folder: str, number: int) -> str:
    """Give the key of a manifest of a table that grows."""
    return f"{folder}manifest-{number:05d}.json"


def is_table_list(output: str, path: str) -> bool:
    """Tell whether a file of an output is a table's list; Spark gives no file of data such a name."""
    return output.startswith("table.") and path.endswith(f"/{_TABLE_LIST}")


def longest_key(job: str, stage: str) -> int:
    """Give the longest key of a stage's files below the storage's root, in bytes."""
    below = execution_folder(10**10 - 1, stage, 10**6, "0" * 16)
    return len(job) + 1 + len(below) + _RUN_BYTES + _MAX_PART + 1 + _WRITER_BYTES


def execution_of(key: str) -> tuple[int, str, str] | None:
    """Give the home, stage and token of the execution that `key` belongs to; None for any other key."""
    segments = key.split("/")
    home = checkpoint_of(key)
    if home is None or len(segments) < 4:
        return None
    if segments[1] == "state":
        return home, segments[2], segments[3].partition("-")[2]
    return (home, segments[2], token_of(segments[3])) if segments[1] in _MARKERS else None


def record_of(key: str) -> int | None:
    """Give the checkpoint whose record has `key`: its document, and its stages' markers and handovers.

    Returns:
        None for a key elsewhere, and for files that stages have written.
    """
    home, name = checkpoint_of(key), key.split("/")[1:2]
    return home if name and (name[0] in _MARKERS or name[0].startswith("pending-")) else None


def compactions(home: int, stage: str) -> str:
    """Give the folder of the records of compactions; `home` is the oldest checkpoint with a file that they replace."""
    return f"{folder(home)}compactions/{check_name('stage', stage)}/"


def compaction(home: int, stage: str, token: str) -> str:
    """Give the key of the record of a compaction."""
    return f"{compactions(home, stage)}{check_token(token)}.json"


def compaction_of(key: str) -> str | None:
    """Give the key of a compaction's record, for the record or a file of the compaction; None for any other key."""
    segments, home = key.split("/"), checkpoint_of(key)
    if home is None or len(segments) < 4:
        return None
    if segments[1] == "compactions":
        return key
    number, _, token = segments[3].partition("-")
    writes = segments[1] == "state" and number == str(COMPACTOR) and _TOKEN.match(token)
    return compaction(home, segments[2], token) if writes else None


def token_of(name: str) -> str:
    """Give the token that a marker's name begins with; a token holds neither `-` nor `.`."""
    return re.split(r"[-.]", name, maxsplit=1)[0]


def check_relative(key: str) -> str:
    """Check a key that a document names: inside the job's prefix, in a checkpoint's folder (semantics W5).

    Args:
        key: relative to the job's prefix; a folder may end in one `/`.

    Raises:
        DocumentError: it is absolute, climbs with `..`, names a scheme, or lies outside every checkpoint folder.
    """
    check_key(key, marker=True)
    if checkpoint_of(key) is None or "\\" in key:
        raise DocumentError("the document names a path outside the job's checkpoints; it is not used", path=key[:200])
    return key


def check_side_list(key: str) -> str:
    """Check a key that a source's position or part names: an epoch's list, or a piece of a position (semantics W5)."""
    check_key(key)
    if not key.startswith(EPOCH_LISTS) or key.count("/") != 2:
        check_relative(key)
    return key


def check_token(token: str) -> str:
    """Check a token that a document names: it becomes part of keys.

    Raises:
        DocumentError: it is not 1 to 64 letters, digits and `_`.
    """
    if _TOKEN.match(token) is None:
        raise DocumentError("a token has 1 to 64 letters, digits or _; this one is refused", token=token[:80])
    return token


def check_output_id(output: str) -> str:
    """Check an `Output.id` that a document names.

    Raises:
        InvalidKeyError: it is not a kind, dot and name.
    """
    if _OUTPUT_ID.match(output) is None:
        raise InvalidKeyError(
            "this names no output: it is written as a kind, a dot and a name of 1 to 250 characters",
            code="invalid_name",
            value=shorten(output),
            grammar=OUTPUT_ID_GRAMMAR,
        )
    return output


def check_job(job: str) -> str:
    """Check a job's name (semantics W1)."""
    return check_name("job", job)


def check_request(request: str) -> str:
    """Check the id of a request for a savepoint; a DAG run's id may be part of it.

    Raises:
        InvalidKeyError: it is empty, longer than 500 characters, or holds control characters.
    """
    if _REQUEST.match(request) is None:
        raise InvalidKeyError(
            "a request id has 1 to 500 characters and no control characters. Choose another",
            code="invalid_name",
            value=shorten(request),
        )
    return request


def check_host(host: str) -> str:
    """Check the name or address of a machine that a document names: a process connects to it.

    Raises:
        DocumentError: it is neither.
    """
    if _HOST.match(host) is None:
        raise DocumentError("this is neither a host's name nor an address; it is not used", host=host[:80])
    return host


def check_partition(partition: str) -> str:
    """Check the partition of a file that a document names.

    Raises:
        DocumentError: the text does not name a partition.
    """
    if _PARTITION.match(partition) is None:
        raise DocumentError("this is not a partition of a table; it is not used", partition=partition[:80])
    return partition


def check_target(target: str) -> str:
    """Check the place of a savepoint that a document names; opening it checks the rest of its form.

    Raises:
        DocumentError: it is not a URI of a storage.
    """
    if _TARGET.match(target) is None:
        raise DocumentError("this is not a place for a savepoint; it is not used", target=target[:200])
    return target
