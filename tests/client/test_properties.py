"""What goes into an address or a header arrives as it is, or is refused before anything is sent: for any text.

The oracle is a bare socket: what it got is taken apart with the standard library. `python tests/proofs/client.py`
tries each property 10,000 times, or as often as it is told.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode

import pytest
from certificates import Authority
from faulty import Peer, told
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from thorough import examples

from airflow_tds.client import errors
from airflow_tds.client.access import Tls
from airflow_tds.client.client import TableClient
from airflow_tds.client.filters import simple_expressions
from airflow_tds.client.messages import SecretUrl
from airflow_tds.client.wire import Initiation

ANY = settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
#: The header fields of any request to the service.
ORDINARY = {"host", "accept", "accept-encoding", "connection", "user-agent", "x-request-id"}
#: Text that means something in an address, among any other.
TEXTS = st.text() | st.text("./%?#&=:@+ \\;,~\r\n\x00é\ud800a", max_size=12)


@pytest.fixture(scope="module")
def peer() -> Iterator[Peer]:
    peer = Peer(lambda _, __: told(403))
    peer.open()
    yield peer
    peer.close()


@pytest.fixture(scope="module")
def client(peer: Peer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TableClient]:
    bundle = Authority(tmp_path_factory.mktemp("known")).bundle  # with one certificate: it is read in no time
    with TableClient(peer.url, tls=Tls(bundle)) as client:
        yield client


def sent(peer: Peer, call: Any) -> Any:
    """Make a call; give what arrived, or None where it was refused before anything was sent."""
    peer.lines.clear()
    peer.whole.clear()
    try:
        call()
    except (errors.ValidationFailed, errors.UnexpectedReply):
        assert peer.lines == []
        return None
    except errors.TableServiceError:
        pass
    [heard] = peer.whole
    return heard


@given(table_id=TEXTS)
@ANY
def test_the_id_of_a_table_is_one_segment_of_the_path(peer: Peer, client: TableClient, table_id: str) -> None:
    heard = sent(peer, lambda: client.truncate(table_id))

    if heard is not None:
        path = heard.line.removeprefix("POST ").split("/")
        assert [unquote(part, errors="strict") for part in path] == ["", "tables", table_id, "data", "truncate"]


@given(job_id=TEXTS)
@ANY
def test_the_id_of_a_job_is_one_segment_of_the_path(peer: Peer, client: TableClient, job_id: str) -> None:
    heard = sent(peer, lambda: client.get_job(job_id))

    if heard is not None:
        assert [unquote(part) for part in heard.line.removeprefix("GET ").split("/")] == ["", "data", "jobs", job_id]


@given(name=st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Zl", "Zp"]), min_size=1, max_size=40))
@ANY
def test_an_id_of_letters_signs_and_blanks_is_not_refused(peer: Peer, client: TableClient, name: str) -> None:
    assert name in (".", "..") or sent(peer, lambda: client.get_job(name)) is not None


SEGMENTS = st.lists(st.text(min_size=1, max_size=8).map(lambda text: quote(text.encode("utf-8", "ignore"), safe="")))
PARAMETERS = st.lists(
    st.tuples(
        st.sampled_from(["X-Amz-Signature", "X-Amz-Credential", "X-Goog-Signature", "sig", "se", "sv", "partNumber"]),
        st.text(st.characters(codec="utf-8"), max_size=20) | st.text("0123456789abcdef", min_size=64, max_size=64),
    )
)
PRESIGNED = st.builds(
    lambda segments, parameters: "/" + "/".join(segments) + ("?" + urlencode(parameters) if parameters else ""),
    SEGMENTS,
    PARAMETERS,
)
RAW = st.text(st.characters(max_codepoint=0x17F), max_size=30).map(lambda text: f"/{text}") | st.text("/.%?#@:\\ aé")


@given(path=PRESIGNED | RAW)
@ANY
def test_a_presigned_url_arrives_byte_for_byte(peer: Peer, client: TableClient, path: str) -> None:
    initiation = Initiation("j", SecretUrl(f"{peer.url}{path}"))

    heard = sent(peer, lambda: client.send_data(initiation, b"a"))

    if heard is not None:
        assert heard.line in (f"PUT {path}", f"PUT /{path}")


@given(path=PRESIGNED)
@ANY
def test_a_presigned_url_as_stores_write_them_is_not_refused(peer: Peer, client: TableClient, path: str) -> None:
    dots = {".", ".."} & set(path.partition("?")[0].split("/"))

    assert dots or sent(peer, lambda: client.send_data(Initiation("j", SecretUrl(f"{peer.url}{path}")), b"a"))


@given(etag=TEXTS)
@ANY
def test_an_etag_is_one_header_or_refused(peer: Peer, client: TableClient, etag: str) -> None:
    heard = sent(peer, lambda: client.query("t", etag=etag))

    if heard is not None:
        assert heard.headers.get("if-none-match", "").removeprefix("W/").strip('"') == etag.removeprefix("W/").strip(
            '"'
        )
        assert set(heard.headers) - {"if-none-match"} == ORDINARY


@given(values=st.lists(TEXTS, max_size=4))
@ANY
def test_filters_arrive_one_by_one(peer: Peer, client: TableClient, values: list[str]) -> None:
    filters = [f"field:eq:{value}" for value in values]

    heard = sent(peer, lambda: client.query("t", filters=filters))

    if heard is not None:
        found = parse_qsl(heard.line.partition("?")[2], keep_blank_values=True)
        assert found == [("filters", expression) for expression in simple_expressions(filters)]
        assert [expression.split(":", 2)[2] for _, expression in found] == values
