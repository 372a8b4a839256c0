"""Texts that others have stored are shown as texts: no markup, no link and no script comes of them."""

from __future__ import annotations

from html.parser import HTMLParser
from urllib.parse import quote

import pytest

from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.storage.errors import DocumentError
from tests.support.world.world import JOB, World
from tests.unit.plugin.page.stand_in import STORAGE, Page, StandIn, dag_of, one_job

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


@pytest.mark.parametrize("payload", PAYLOADS)
def test_what_stages_and_people_write_is_text(payload: str) -> None:
    world = World()
    epoch = layout.epoch_name(f"manual__{payload}")
    world.run_epoch("a")
    world.trigger(epoch)
    world.run_stage(epoch, "clean")
    routes = world.submit(epoch, "routes").handover
    world.coordinator().fail(epoch, "routes", routes.claimant, payload)
    world.decline(world.submit(epoch, "routes").handover, payload)
    page = Page(one_job(world.memory))
    for path in ("/dags/flights", ONE, f"{ONE}/history", *(f"{ONE}/{page}" for page in PAGES)):
        answer = page.get(path)
        assert answer.status_code == 200
        harmless(answer.text)


@pytest.mark.parametrize("payload", PAYLOADS)
def test_what_a_dag_declares_is_text(payload: str, busy: World) -> None:
    dag = dag_of(payload, (f"{STORAGE}{payload}", JOB), (STORAGE, payload))
    drawn = dag_of("flights", (STORAGE, JOB), rename=lambda name: name + payload)
    page = Page(StandIn([drawn, dag], {STORAGE: busy.memory}))
    harmless(page.get("/").text)
    harmless(page.get(f"{ONE}/checkpoints/2").text)
    harmless(page.get(f"{ONE}/configuration").text)
    templated = StandIn([dag_of("flights", (f"{{{{ x }}}}{payload}", payload))], {})
    harmless(Page(templated).get("/dags/flights").text)


@pytest.mark.parametrize("payload", PAYLOADS)
def test_what_a_reader_or_an_error_says_is_text(payload: str, busy: World) -> None:
    page = Page(one_job(busy.memory))
    harmless(page.get(f"{ONE}/history?run={quote(payload, safe='')}").text)
    answer = Page(one_job(DocumentError(payload, key=payload))).get("/dags/flights")
    assert answer.status_code == 502
    harmless(answer.text)
    one_line = payload.replace("\r\n", " ")  # Airflow itself answers a path with a line's end
    harmless(page.get(f"/dags/flights/jobs/{quote(one_line, safe='')}").text)
