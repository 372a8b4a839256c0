"""Parts that need no JVM: conf, slices, values, one-line details, choosing an upstream's output."""

import json
import pickle
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from zipfile import ZipFile

import pyspark
import pytest

from airflow_cairn.checkpoint.documents.acknowledgement import Output
from airflow_cairn.checkpoint.documents.attempt import DocumentRef as Ref
from airflow_cairn.checkpoint.documents.attempt import Handover, ReplayedEpoch, RestorePointer, Slice
from airflow_cairn.checkpoint.errors import InvalidConfigError, InvalidStateError
from airflow_cairn.checkpoint.masking import MAX_DETAIL
from airflow_cairn.checkpoint.store.job_files import JobFiles
from airflow_cairn.checkpoint.store.source_lists import SideLists
from airflow_cairn.spark.epoch_event_time import EpochFacts
from airflow_cairn.spark.execution.failure_kinds import error_line
from airflow_cairn.spark.execution.transport import check_version, session
from airflow_cairn.spark.handover import conf
from airflow_cairn.spark.handover.conf import azure_conf, gcs_conf, gcs_environment, s3a_conf
from airflow_cairn.spark.input import inputs, slices
from airflow_cairn.spark.kinds.raw_files import FileStatus
from airflow_cairn.spark.stored.outputs import StageContents, Stored
from airflow_cairn.storage import (
    AzureOptions,
    CairnError,
    GcsOptions,
    InvalidKeyError,
    S3Options,
    UnsupportedStorageError,
)
from airflow_cairn.storage.errors import DocumentError
from airflow_cairn.storage.names import parse_storage_uri
from tests.support.memory_store import MemoryStore


def handover(own: Slice | None = None, *replayed: Slice) -> Handover:
    return Handover(
        job="flights",
        checkpoint=17,
        epoch="scheduled__2026-01-03",
        attempt=2,
        stage="routes",
        token="t0",
        claimant="try",
        slice=own or Slice(),
        restore=RestorePointer(16, Ref("chk-0000000016/_metadata-x", 1, "00")),
        replay=tuple(ReplayedEpoch(f"old-{number}", each) for number, each in enumerate(replayed)),
    )


FOLDER = parse_storage_uri("file:///tmp/lake")
LAKE = parse_storage_uri("s3a://lake/cairn/")
KEY = "chk-0000000017/handover/routes/t0.json"
WAY: dict[str, Any] = {
    "endpoint_url": "http://127.0.0.1:7070",
    "region": "eu-west-1",
    "request_payer": "requester",
    "server_side_encryption": "aws:kms",
    "sse_kms_key_id": "alias/lake",
    "expected_bucket_owner": "123456789012",
}


def test_conf_goes_to_the_application_and_back() -> None:
    window = Slice("2026-01-03T00:00:00+00:00", "2026-01-04T00:00:00+00:00", {"private": "x" * 9999})
    given_conf = conf.handover_conf(
        handover(window),
        KEY,
        storage=LAKE,
        options=S3Options(**WAY, access_key="AKIACANARY", secret_key="canary"),
        sources={"files": LAKE},
    )
    assert given_conf == {
        "spark.cairn.storage": "s3://lake/cairn",
        "spark.cairn.job": "flights",
        "spark.cairn.handover": KEY,
        "spark.cairn.sources": "%7B%22files%22%3A%20%22s3%3A//lake/cairn%22%7D",
        "spark.cairn.s3.endpoint": "http://127.0.0.1:7070",
        "spark.cairn.s3.region": "eu-west-1",
        "spark.cairn.s3.requestPayer": "requester",
        "spark.cairn.s3.encryption": "aws:kms",
        "spark.cairn.s3.kmsKeyId": "alias/lake",
        "spark.cairn.s3.bucketOwner": "123456789012",
        "spark.cairn.checkpoint": "17",
        "spark.cairn.epoch": "scheduled__2026-01-03",
        "spark.cairn.attempt": "2",
        "spark.cairn.stage": "routes",
        "spark.cairn.slice": '{"start": "2026-01-03T00:00:00+00:00", "end": "2026-01-04T00:00:00+00:00"}',
        "spark.cairn.restore": "16",
    }
    assert all(key.startswith(conf.PREFIX) for key in given_conf)
    handed = conf.parse(given_conf.get)
    assert handed == conf.Handed(LAKE, "flights", KEY, S3Options(**WAY), sources={"files": LAKE})
    believed = {key: value for key, value in given_conf.items() if key not in conf.FOR_PEOPLE}
    assert conf.parse(believed.get) == handed


def test_the_last_epoch_says_so() -> None:  # semantics P2
    files = JobFiles(MemoryStore(), "flights")
    sources = slices.SourceFiles(handover(), files, lambda _urls: [])
    assert not EpochFacts(handover(), files, sources).draining
    assert EpochFacts(replace(handover(), draining=True), files, sources).draining


def test_local_conf_says_nothing_of_s3_and_the_ui_shows_json() -> None:
    given_conf = conf.handover_conf(handover(), KEY, storage=FOLDER)
    assert not [key for key in given_conf if ".s3." in key]
    assert conf.parse(given_conf.get).options is None
    assert json.loads(given_conf[conf.SLICE]) == {"start": None, "end": None}


@pytest.mark.parametrize("missing", [conf.HANDOVER, conf.STORAGE, conf.JOB])
@pytest.mark.parametrize("value", [None, ""])
def test_an_application_that_was_not_submitted_by_cairn(missing: str, value: str | None) -> None:
    found: dict[str, str | None] = {**conf.handover_conf(handover(), KEY, storage=FOLDER), missing: value}
    with pytest.raises(InvalidConfigError) as refused:
        conf.parse(found.get)
    assert str(refused.value).startswith(
        f"this application was not submitted by SparkEpochOperator: conf {missing} is missing. Run it as a task: "
    )


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        (conf.HANDOVER, "/etc/passwd", CairnError),
        (conf.HANDOVER, "chk-0000000017/../../other", CairnError),
        (conf.HANDOVER, "head.json", DocumentError),
        (conf.STORAGE, "ftp://lake/cairn", UnsupportedStorageError),
        (conf.STORAGE, "lake/cairn", InvalidKeyError),
        (conf.JOB, "../other", InvalidKeyError),
        (conf.JOB, "x" * 300, InvalidKeyError),
    ],
)
def test_hostile_conf_is_refused(key: str, value: str, error: type[CairnError]) -> None:  # semantics W1, W5
    found: dict[str, str] = {**conf.handover_conf(handover(), KEY, storage=FOLDER), key: value}
    with pytest.raises(error):
        conf.parse(found.get)


def test_s3a_looks_for_credentials_by_names_that_every_hadoop_knows() -> None:
    """Hadoop 3.3 has no SDK 2, and fails with ClassNotFoundException where a class of it is named."""
    named = s3a_conf()["spark.hadoop.fs.s3a.aws.credentials.provider"].split(",")
    assert named[0] == "com.amazonaws.auth.EnvironmentVariableCredentialsProvider", "later ones map it to SDK 2"
    assert all(name.startswith(("com.amazonaws.", "org.apache.hadoop.fs.s3a.")) for name in named)


def test_s3a_conf_has_no_credentials() -> None:
    found = s3a_conf(S3Options("http://127.0.0.1:7070", "eu-west-1"))
    assert found["spark.hadoop.fs.s3a.endpoint"] == "http://127.0.0.1:7070"
    assert found["spark.hadoop.fs.s3a.endpoint.region"] == "eu-west-1"
    assert found["spark.hadoop.fs.s3a.path.style.access"] == "true"
    assert found["spark.hadoop.fs.s3a.connection.ssl.enabled"] == "false"
    assert s3a_conf(S3Options("https://store.example"))["spark.hadoop.fs.s3a.connection.ssl.enabled"] == "true"
    assert not [key for key in found if "key" in key or "secret" in key or "token" in key]
    assert set(s3a_conf()) == {"spark.hadoop.fs.s3a.aws.credentials.provider"}


@pytest.mark.parametrize(
    ("option", "conf_of_s3a"),
    [
        ({}, {}),
        ({"request_payer": "requester"}, {"requester.pays.enabled": "true"}),
        ({"server_side_encryption": "AES256"}, {"encryption.algorithm": "AES256"}),
        ({"server_side_encryption": "aws:kms"}, {"encryption.algorithm": "SSE-KMS"}),
        (
            {"server_side_encryption": "aws:kms:dsse", "sse_kms_key_id": "k"},
            {"encryption.algorithm": "DSSE-KMS", "encryption.key": "k"},
        ),
        (
            {"expected_bucket_owner": "123456789012"},
            {"client.s3.custom.headers": "x-amz-expected-bucket-owner=123456789012"},
        ),
    ],
    ids=str,
)
def test_s3a_sends_the_headers_that_a_bucket_asks_for(option: dict[str, Any], conf_of_s3a: dict[str, str]) -> None:
    usual = s3a_conf()
    for bucket, where in (("", ""), ("lake", "bucket.lake.")):
        found = s3a_conf(S3Options(**option), bucket)
        more = {key: value for key, value in found.items() if key not in usual}
        assert more == {f"spark.hadoop.fs.s3a.{where}{key}": value for key, value in conf_of_s3a.items()}


HOST = "account1.dfs.core.windows.net"
OAUTH = "org.apache.hadoop.fs.azurebfs.oauth2."
MANAGED = {"account.auth.type": "OAuth", "account.oauth.provider.type": f"{OAUTH}MsiTokenProvider"}
WORKLOAD = {**MANAGED, "account.oauth.provider.type": f"{OAUTH}WorkloadIdentityTokenProvider"}
CLIENT, TENANT = {"account.oauth2.client.id": "c"}, {"account.oauth2.msi.tenant": "t"}
NO_THREAD = {"spark.hadoop.fs.azure.metrics.collection.enabled": "false"}


@pytest.mark.parametrize(
    ("options", "conf_of_azure"),
    [
        (None, MANAGED),
        (AzureOptions(), MANAGED),
        (AzureOptions(client_id="c"), MANAGED | CLIENT),
        (AzureOptions(client_id="c", tenant_id="t"), WORKLOAD | CLIENT | TENANT),
    ],
    ids=["none", "managed", "one of several", "workload"],
)
def test_spark_has_the_identity_of_the_options_on_azure(
    options: AzureOptions | None, conf_of_azure: dict[str, str]
) -> None:
    theirs = {f"spark.hadoop.fs.azure.{key}.{HOST}": value for key, value in conf_of_azure.items()}
    assert azure_conf(options, HOST) == NO_THREAD | theirs


def test_an_emulator_of_azure_has_its_key_under_both_hosts() -> None:
    """The connector lists by the one and reads by the other."""
    found = azure_conf(AzureOptions("http://127.0.0.1:1"), HOST)
    assert {f"spark.hadoop.fs.azure.account.key.{host}" for host in (HOST, HOST.replace(".dfs.", ".blob."))} <= {*found}


BY_DEFAULT, BY_NONE = {"auth.type": "APPLICATION_DEFAULT"}, {"auth.type": "UNAUTHENTICATED"}
EMULATED = {"auth.service.account.enable": "false", "auth.null.enable": "true", "project.id": "emulated"}
KEY_FILE, AT = "GOOGLE_APPLICATION_CREDENTIALS", "STORAGE_EMULATOR_HOST"


@pytest.mark.parametrize(
    ("options", "conf_of_google", "environment"),
    [
        (GcsOptions(), BY_DEFAULT, {}),
        (GcsOptions(key_path="/keys/a.json"), BY_DEFAULT, {KEY_FILE: "/keys/a.json"}),
        (GcsOptions("https://p"), BY_DEFAULT | {"storage.root.url": "https://p/"}, {AT: "https://p"}),
        (GcsOptions("http://e:1"), BY_NONE | EMULATED | {"storage.root.url": "http://e:1/"}, {AT: "http://e:1"}),
    ],
    ids=["workload or machine", "key file", "private endpoint", "emulator"],
)
def test_spark_has_the_identity_of_the_options_on_google(
    options: GcsOptions, conf_of_google: dict[str, str], environment: dict[str, str]
) -> None:
    told = {key.removeprefix("spark.hadoop.fs.gs."): value for key, value in gcs_conf(options).items()}
    about = ("auth.", "project.", "storage.")
    assert {key: value for key, value in told.items() if key.startswith(about)} == conf_of_google
    assert gcs_environment(options) == environment


def test_google_is_told_numbers_where_hadoop_has_sizes() -> None:
    """Google's connector reads no `64m`, and Hadoop 3.5 has such defaults."""
    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    with ZipFile(jar) as opened:
        defaults = ElementTree.fromstring(opened.read("core-default.xml"))
    found = {str(each.findtext("name")): each.findtext("value") or "" for each in defaults.iter("property")}
    sizes = {name for name, value in found.items() if name.startswith("fs.gs.") and re.fullmatch(r"\d+[kmg]", value)}
    told = {key.removeprefix("spark.hadoop.") for key, value in gcs_conf().items() if value.isdigit()}
    assert sizes <= told


DAY = [f"2026-01-0{day}T00:00:00+00:00" for day in range(1, 10)]


def test_slices_that_adjoin_have_a_hull() -> None:  # semantics R1, T8
    given_handover = handover(
        Slice("2026-01-03T02:00:00+02:00", DAY[3]), Slice(DAY[0], DAY[1]), Slice("2026-01-02T00:00:00Z", DAY[2])
    )
    assert slices.hull_of(given_handover) == Slice(DAY[0], DAY[3])
    assert [each.end for each in slices.slices_of(given_handover)] == [DAY[1], DAY[2], DAY[3]]
    by_text = handover(Slice("w1", "w2"), Slice("w0", "w1"))
    assert slices.hull_of(by_text) == Slice("w0", "w2"), "those that are no dates adjoin by their text"


def test_without_replay_the_slice_is_the_authors_own() -> None:
    own = Slice(None, None, {"files": ["a"]})
    assert slices.hull_of(handover(own)) == own
    assert slices.slices_of(handover(own)) == [own]


@pytest.mark.parametrize(
    ("own", "older", "why"),
    [
        (Slice(DAY[3], DAY[4]), Slice(DAY[0], DAY[1]), "ends at 2026-01-02T00:00:00+00:00 and the next starts at"),
        (Slice(DAY[0], DAY[2]), Slice(DAY[0], DAY[1]), "the next starts at 2026-01-01"),
        (Slice(), Slice(DAY[0], DAY[1]), "one of them is not a window of time"),
        (Slice(DAY[1], DAY[2]), Slice(None, DAY[1]), "one of them is not a window of time"),
        (Slice(DAY[1], DAY[2], {"files": []}), Slice(DAY[0], DAY[1]), "details of the DAG author's"),
        (Slice("week 2", "week 3"), Slice("week 0", "week 1"), "ends at week 1 and the next starts at week 2"),
    ],
)
def test_slices_that_do_not_adjoin_have_none(own: Slice, older: Slice, why: str) -> None:
    with pytest.raises(InvalidStateError) as refused:
        slices.hull_of(handover(own, older))
    assert why in str(refused.value)
    assert "Read each of epoch.slices instead of epoch.slice [job=`flights` older=`old-0`]" in str(refused.value)
    assert len(slices.slices_of(handover(own, older))) == 2


def test_slices_with_asset_events_or_files_have_no_hull() -> None:  # semantics T8
    for part in ([{"id": "a"}], {"uri": "file:///in", "files": []}):
        own = Slice(DAY[1], DAY[2], sources={"s": part})
        with pytest.raises(InvalidStateError, match="not windows of time"):
            slices.hull_of(handover(own, Slice(DAY[0], DAY[1], sources={"s": part})))
    older, own = (Slice(start, end, sources={"s": {"start": start, "end": end}}) for start, end in (DAY[:2], DAY[1:3]))
    assert slices.hull_of(handover(own, older)) == Slice(DAY[0], DAY[2])


def test_files_of_all_slices_from_the_documents_and_from_a_long_list() -> None:  # semantics T8, R1
    files = JobFiles(MemoryStore(), "flights")
    listed, _ = SideLists(files, "old-0", 1, str).fix("files", [{"key": "a", "url": "s3a://in/a"}], lambda: None)
    older = Slice(sources={"files": {"uri": "s3://in", "list": listed.to_reference(), "count": 1}})
    own = Slice(sources={"files": {"uri": "s3://in", "files": [{"key": "b", "url": "s3a://in/b[1]"}]}, "events": []})

    def urls(source: str, *slices_: Slice) -> list[str]:
        return slices.SourceFiles(handover(own, *slices_), files, lambda urls: [None] * len(urls)).urls(source)

    assert urls("files", older) == ["s3a://in/a", r"s3a://in/b\[1\]"], "literal, whatever Spark reads as a pattern"
    assert urls("files", Slice()) == [r"s3a://in/b\[1\]"], "the source is newer"
    for source in ("other", "events"):
        with pytest.raises(InvalidStateError, match=r"no files of this source.*events, files"):
            urls(source)


BELOW = [
    ("s3://lake/raw", "s3a://lake/raw/day 1/a[1].csv"),
    ("s3://lake", "s3a://lake/a"),
    ("file:///in/raw", "file:///in/raw/a"),
]
ELSEWHERE = [
    *(("s3://lake/raw", f"s3a://lake/{path}") for path in ("rawer/a", "raw", "raw/", "raw/../a", "raw//../../a")),
    *(("s3://lake/raw", f"{other}/raw/a") for other in ("s3a://other", "file:///lake", "hdfs://lake", "s3a://lake/x")),
    *(("file:///in/raw", url) for url in ("/in/raw/a", "file:/in/raw/a", "file:///in/raw/./../../etc/x", "../etc/x")),
    (None, "s3a://lake/raw/a"),
]


@pytest.mark.parametrize(("uri", "url"), [*BELOW, *ELSEWHERE])
def test_a_file_outside_of_its_source_s_folder_is_not_read(uri: str | None, url: str) -> None:  # semantics W10
    """Others may write the stored lists: the DAG's own `uri` bounds them."""
    files = JobFiles(MemoryStore(), "flights")
    listed, _ = SideLists(files, "e", 1, str).fix("files", [{"key": "a", "url": url}], lambda: None)
    short, long = {"uri": "/", "files": [{"key": "a", "url": url}]}, {"uri": "/", "list": listed.to_reference()}
    places = {} if uri is None else {"files": parse_storage_uri(uri)}
    for own, older in ((short, long), (long, short), (long, None)):
        before = [] if older is None else [Slice(sources={"files": older})]
        at = handover(Slice(sources={"files": own}), *before)
        given = slices.SourceFiles(at, files, lambda _: [], places)
        if (uri, url) in BELOW:
            assert len(given.urls("files")) == 1 + len(before)
            assert EpochFacts(at, files, given).slices
            continue
        with pytest.raises(InvalidStateError, match="'files' names a file that does not lie below the folder"):
            given.urls("files")
        if uri is not None and short in (own, older):
            with pytest.raises(InvalidStateError, match="below the folder"):
                EpochFacts(at, files, given).slices  # noqa: B018 - an application may open the files by itself


FIXED = {"key": "a", "url": "s3a://in/a", "size_bytes": 3, "etag": '"x"', "modified_ms": 5_000}


@pytest.mark.parametrize(
    ("fixed", "now", "said"),
    [
        (FIXED, FileStatus(3, "x", 5_000), None),
        (FIXED, FileStatus(3, '"x"', 6_000), None),  # written again as it was
        (FIXED, FileStatus(3, '"y"', 5_000), "a was written again"),
        (FIXED, FileStatus(4, '"x"', 5_000), "a had 3 bytes and has 4"),
        (FIXED, None, "a is gone"),
        (FIXED, FileStatus(3, None, 5_000), None),  # over Connect there is no tag
        (FIXED, FileStatus(3, None, 6_000), "a was written again"),
        ({**FIXED, "etag": "", "modified_ms": 5_123}, FileStatus(3, None, 5_000), None),  # a server names seconds
        ({**FIXED, "etag": "", "modified_ms": 5_123}, FileStatus(3, None, 5_124), "a was written again"),
        ({"key": "a", "url": "s3a://in/a", "size_bytes": 3, "etag": ""}, FileStatus(3, None, 5_124), None),
        ({"key": "a", "url": "s3a://in/a"}, None, None),  # a test's own, of which nothing is known
    ],
)
@pytest.mark.parametrize("by", ["files", "slice", "slices"])
def test_a_file_is_read_as_it_was_fixed_or_named(fixed: Any, now: FileStatus | None, said: str | None, by: str) -> None:
    """semantics T11: before it is read, and after; any reader, also an author who reads the slice's URLs"""
    files = JobFiles(MemoryStore(), "flights")
    part = {"uri": "s3://in", "files": [fixed, {**fixed, "key": "b", "url": "s3a://in/b"}]}
    own, whole = Slice(sources={"files": part}), FileStatus(3, "x", 5_000)
    seen: dict[str, FileStatus | None] = {"s3a://in/a": now, "s3a://in/b": whole}
    if "size_bytes" in fixed and not fixed["etag"]:
        seen["s3a://in/b"] = FileStatus(3, None, fixed.get("modified_ms"))
    given = slices.SourceFiles(handover(own), files, lambda urls: [seen[url] for url in urls])

    def urls() -> list[str]:
        facts = EpochFacts(handover(own), files, given)
        if by == "files":
            return facts.files()
        slice_ = facts.slice if by == "slice" else facts.slices[-1]
        parts: Any = slice_.sources
        assert type(pickle.loads(pickle.dumps(slice_)).sources) is dict
        return [each["url"] for each in parts["files"]["files"]]

    if said is None:
        assert urls() == ["s3a://in/a", "s3a://in/b"]
        given.check_unchanged()
        seen["s3a://in/b"] = FileStatus(99, "y", 9_000)
        if "size_bytes" in fixed:
            with pytest.raises(InvalidStateError, match="'files' have changed while this stage read them: b had 3"):
                given.check_unchanged()
        return
    with pytest.raises(InvalidStateError, match="'files' have changed since they were fixed to be read") as raised:
        urls()
    assert f": {said}. " in str(raised.value)
    assert "Mark this run as failed: the next one reads them" in str(raised.value)


def test_a_file_of_an_older_epoch_has_another_way_out() -> None:  # semantics R1, T11
    """The job counts it as read, so the next run would not read it; put back, it has another time."""
    files = JobFiles(MemoryStore(), "flights")
    older = Slice(sources={"files": {"uri": "s3://in", "files": [{**FIXED, "etag": ""}]}})
    own = Slice(sources={"files": {"uri": "s3://in", "files": []}})
    put_back = slices.SourceFiles(handover(own, older), files, lambda urls: [FileStatus(3, None, 9_999)] * len(urls))
    assert put_back.urls("files") == ["s3a://in/a"]
    gone = slices.SourceFiles(handover(own, older), files, lambda urls: [None] * len(urls))
    with pytest.raises(InvalidStateError, match="put them back, or go back to before it by `cairn rewind`"):
        gone.urls("files")


def test_of_many_files_that_changed_the_first_are_named() -> None:
    part = {"uri": "s3://in", "files": [{**FIXED, "key": f"{n:02d}", "url": f"s3a://in/{n}"} for n in range(12)]}
    own = Slice(sources={"files": part})
    given = slices.SourceFiles(handover(own), JobFiles(MemoryStore(), "flights"), lambda urls: [None] * len(urls))
    with pytest.raises(InvalidStateError, match=r"09 is gone; 2 more\."):
        given.urls("files")


class Odd(Exception):  # noqa: N818 - a name to be seen in the text
    pass


SECRETS = {
    "fs.s3a.secret.key=abc/def+1": "fs.s3a.secret.key=***",
    "spark.hadoop.fs.s3a.access.key: QQQQ1234": "spark.hadoop.fs.s3a.access.key: ***",
    '{"aws_secret_access_key": "abc"}': '{"aws_secret_access_key": "***"}',
    "jdbc:postgresql://user:pass@host/db": "jdbc:postgresql://***@host/db",
    "jdbc:x://h/db?user=u&password=pw&ssl=1": "jdbc:x://h/db?user=u&password=***&ssl=1",
    "denied for AKIAIOSFODNN7EXAMPLE here": "denied for *** here",
    "https://b/k?X-Amz-Signature=abcdef&X-Amz-Credential=AK/2": "https://b/k?X-Amz-Signature=***&X-Amz-Credential=***",
    "Authorization: Bearer eyJhbGciOi.J9": "Authorization: Bearer ***",
    "the canary is canary-value-1": "the canary is ***",
}


@pytest.mark.parametrize(("text", "masked"), SECRETS.items())
def test_details_hold_no_credentials(text: str, masked: str) -> None:
    environ = {"AWS_SECRET_ACCESS_KEY": "canary-value-1", "AWS_SESSION_TOKEN": "short"}
    assert error_line(Odd(text), environ=environ) == f"Odd: {masked}"


def test_details_are_one_line_without_stack_traces() -> None:
    text = (
        "Job aborted.\n\tat org.apache.spark.Foo.bar(Foo.scala:1)\n\t... 3 more\n"
        "Caused by: java.io.IOException: No space left\n"
    )
    assert error_line(Odd(text)) == "Odd: Job aborted. Caused by: java.io.IOException: No space left"
    assert error_line(Odd()) == "Odd"
    long = error_line(Odd("start " + "x" * 5000 + " end"))
    assert len(long) <= MAX_DETAIL
    assert long.startswith("Odd: start ")
    assert long.endswith(" end")


def contents(*names: str) -> StageContents:
    pairs = (name.split(".") for name in names)
    outputs = (Output(kind=kind, name=name, folder="chk-0000000001/x/") for kind, name in pairs)
    return StageContents("clean", {output.id: Stored(output) for output in outputs})


@pytest.mark.parametrize(
    ("there", "name", "kind", "chosen"),
    [
        (["exchange.main", "state.a", "table.b"], None, "exchange", "exchange.main"),
        (["exchange.main", "state.a", "table.b"], "a", None, "state.a"),
        (["state.a"], None, "state", "state.a"),
        (["exchange.a", "state.a"], "a", "state", "state.a"),
        (["exchange.a", "exchange.b"], "b", None, "exchange.b"),
        (["exchange.a", "table.b", "table.c"], None, "exchange", "exchange.a"),
    ],
)
def test_an_upstreams_output_is_chosen(there: list[str], name: str | None, kind: str | None, chosen: str) -> None:
    assert inputs.choose(contents(*there), name, kind).output.id == chosen


@pytest.mark.parametrize(
    ("there", "name", "kind", "why"),
    [
        ([], None, None, "has no such output. Where it may write no exchange, give kind='exchange' and schema"),
        (["exchange.a", "exchange.b"], None, "exchange", "has more than one such output; give its name"),
        (["state.a", "table.a"], "a", None, "more than one such output named 'a'; give its kind"),
        (["exchange.a", "state.a"], "a", None, "more than one such output named 'a'; give its kind"),
        (["exchange.a"], "b", None, "has no such output named 'b' [stage=`clean` there_is=`exchange a`]"),
        (["state.a"], "b", None, "has no such output named 'b'. Where it may write no exchange, give kind='exchange'"),
        (["state.a"], "a", "table", "has no such output named 'a'"),
    ],
)
def test_no_output_is_guessed(there: list[str], name: str | None, kind: str | None, why: str) -> None:
    with pytest.raises(InvalidStateError) as refused:
        inputs.choose(contents(*there), name, kind)
    assert why in str(refused.value)


@pytest.mark.parametrize(
    ("there", "kind", "wrote_none"),
    [
        ([], None, True),
        (["value.a"], None, True),
        (["state.a"], None, False),  # which may be carried over: the reader has to say what is meant
        (["state.a"], "exchange", True),
        (["exchange.a"], "table", True),
        (["exchange.a"], None, False),
    ],
)
def test_a_stage_without_input_is_told_from_a_misspelt_name(  # semantics B6
    there: list[str], kind: str | None, wrote_none: bool
) -> None:
    assert inputs.wrote_none(contents(*there), kind) is wrote_none


class ConnectSession:
    """Spark Connect's session, as far as Cairn looks at it: there is no JVM behind it."""


def test_a_connect_session_is_taken_if_pyspark_has_made_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """With another one functions do not work."""
    given: Any = ConnectSession()
    monkeypatch.delenv("SPARK_CONNECT_MODE_ENABLED", raising=False)
    with pytest.raises(InvalidConfigError, match=r"made past pyspark\.sql\.SparkSession, so pyspark\.sql\.functions"):
        session(given)
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    assert session(given) is given


def test_a_spark_is_taken_if_it_is_new_enough() -> None:
    for taken in ("3.5.0", "3.5.1-amzn-0", "3.5.2.3.3.7180.0-274", "4.3.0", "10.0"):
        check_version(taken)
    for old in ("2.4.8", "3.4.4", "3.4.1-databricks"):
        with pytest.raises(InvalidConfigError, match=rf"this is Spark {re.escape(old)}, and Cairn needs Spark 3\.5"):
            check_version(old)
