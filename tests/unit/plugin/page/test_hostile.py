"""Texts that others have stored are shown as texts: no markup, no link and no script comes of them."""

from collections.abc import Iterable
from html.parser import HTMLParser
from urllib.parse import quote

from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.storage.errors import DocumentError
from tests.support.world.world import JOB, World
from tests.unit.plugin.page.stand_in import STORAGE, Page, StandIn, dag_of

ONE = "/dags/flights/jobs/epoch0.trigger"

PAYLOADS = [
    "<script>alert(1)</script>",
    '"><script>alert(1)</script>',
    "'><img src=x onerror=alert(1)>",
    "</code></main><script>alert(1)</script>",
    "<svg onload=alert(1)>",
    "<iframe srcdoc='<script>alert(1)</script>'>",
    "<a href='javascript:alert(1)'>x</a>",
    "javascript:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    '" autofocus onfocus=alert(1) x="',
    "` onmouseover=alert(1) `",
    "`</code><script>alert(1)</script>`",
    "{{ 7 * 7 }}{% include 'base.html' %}",
    "<!--<script>",
    "]]><script>alert(1)</script>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "\N{RIGHT-TO-LEFT OVERRIDE}txet",
    "<style>body{display:none}</style>",
    "<base href='https://evil.example/'>",
    "<meta http-equiv=refresh content='0;url=https://evil.example/'>",
    "x\r\nSet-Cookie: a=b",
]


PAGES = ("checkpoints/2", "checkpoints/3", "failovers", "state", "checkpoints/1/files")
"""Pages below a job."""


class Tags(HTMLParser):
    """Collects what a browser would act on."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = {name for name, _ in attrs}
        links = [value or "" for name, value in attrs if name in {"href", "src", "action", "srcdoc", "style"}]
        handlers = {name for name in names if name.startswith("on")}
        ours = all(link.startswith(("/cairn/", "/dags/", "#main")) for link in links)
        known = tag in KNOWN and (tag != "script" or ("src", "/cairn/static/cairn.js") in attrs)
        if handlers or not ours or not known or names & {"style", "http-equiv"}:
            self.found.append(f"<{tag} {attrs}>")


TAGS = """html head meta title link script body a header main h1 h2 h3 p nav code pre dl dt dd div section ul ol li span
strong progress table thead tbody tr th td time form label select option input button details summary svg rect
figure figcaption g path text"""
KNOWN = frozenset(TAGS.split())


def harmless(text: str) -> None:
    tags = Tags()
    tags.feed(text)
    assert tags.found == []
    assert text.count("<script") == 1


def looked_at(page: Page, paths: Iterable[str], status: int = 200) -> None:
    for path in paths:
        answer = page.get(path)
        assert answer.status_code == status, path
        harmless(answer.text)


def test_what_stages_and_people_write_is_text() -> None:
    dags, stores = [], {}
    for number, payload in enumerate(PAYLOADS):
        world = World()
        epoch = layout.epoch_name(f"manual__{payload}")
        world.run_epoch("a")
        world.trigger(epoch)
        world.run_stage(epoch, "clean")
        routes = world.submit(epoch, "routes").handover
        world.coordinator().fail(epoch, "routes", routes.claimant, payload)
        world.decline(world.submit(epoch, "routes").handover, payload)
        dags.append(dag_of(f"d{number}", (f"s3://{number}", JOB)))
        stores[f"s3://{number}"] = world.memory
    page = Page(StandIn(dags, stores))
    for number, payload in enumerate(PAYLOADS):
        one = f"/dags/d{number}/jobs/{JOB}"
        assert "manual__" in page.get(one).text, payload
        looked_at(page, [f"/dags/d{number}", one, f"{one}/history", *(f"{one}/{path}" for path in PAGES)])


def test_what_a_dag_declares_is_text(busy: World) -> None:
    dags = [dag_of(payload, (f"{STORAGE}{payload}", JOB), (STORAGE, payload)) for payload in PAYLOADS]
    for number, payload in enumerate(PAYLOADS):
        dags.append(dag_of(f"drawn{number}", (STORAGE, JOB), suffix=payload))
        dags.append(dag_of(f"templated{number}", (f"{{{{ x }}}}{payload}", payload)))
    page = Page(StandIn(dags, {STORAGE: busy.memory}))
    looked_at(page, ["/"])
    for number in range(len(PAYLOADS)):
        one = f"/dags/drawn{number}/jobs/{JOB}"
        looked_at(page, [f"{one}/checkpoints/2", f"{one}/configuration", f"/dags/templated{number}"])


def test_what_a_reader_or_an_error_says_is_text(busy: World) -> None:
    damaged = {f"s3://{number}": DocumentError(payload, key=payload) for number, payload in enumerate(PAYLOADS)}
    dags = [dag_of(f"d{number}", (uri, JOB)) for number, uri in enumerate(damaged)]
    page = Page(StandIn([dag_of("flights", (STORAGE, JOB)), *dags], {STORAGE: busy.memory, **damaged}))
    for number, payload in enumerate(PAYLOADS):
        looked_at(page, [f"{ONE}/history?run={quote(payload, safe='')}"])
        looked_at(page, [f"{ONE}/checkpoints/2/files?stage={quote(payload, safe='')}"])
        looked_at(page, [f"/dags/d{number}"], 502)
        one_line = payload.replace("\r\n", " ")  # Airflow itself answers a path with a line's end
        looked_at(page, [f"/dags/flights/jobs/{quote(one_line, safe='')}"], 404)
