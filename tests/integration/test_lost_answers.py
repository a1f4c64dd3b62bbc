"""What the wire does to a put: answers get lost, servers are busy, ignorant or forbidding."""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from tests.support.servers.azure import AzureServer
from tests.support.servers.gcs import GcsServer
from tests.support.servers.proxy import (
    Answer,
    Hold,
    Lose,
    Proxy,
    Request,
    Verdict,
    Without,
    only,
    proxied,
    s3_error,
)
from tests.support.servers.s3 import S3Server

from delta_log.errors import AccessDenied, InvalidRequest, StorageError
from delta_log.storage.opening import open_storage
from delta_log.storage.storage import KeySpan, Storage


@dataclasses.dataclass(frozen=True)
class Wired:
    """A storage behind a proxy, and the same store without it."""

    storage: Any
    proxy: Proxy
    direct: Storage


def wired_s3(server: S3Server, bucket: str, **more: Any) -> Iterator[Wired]:
    uri = f"s3://{bucket}/table"
    with proxied(server.endpoint) as proxy:
        options = {**server.storage_options, "endpoint_url": proxy.endpoint, **more}
        yield Wired(open_storage(uri, options), proxy, open_storage(uri, server.storage_options))


@pytest.fixture
def s3(s3_server: S3Server, s3_bucket: str) -> Iterator[Wired]:
    yield from wired_s3(s3_server, s3_bucket)


@pytest.fixture
def s3_by_s3fs(s3_server: S3Server, s3_bucket: str) -> Iterator[Wired]:
    """What obstore does not know of is left to s3fs."""
    yield from wired_s3(s3_server, s3_bucket, requester_pays=True)


@pytest.fixture
def unsigned_s3(s3_server: S3Server, s3_bucket: str) -> Iterator[Wired]:
    """A signature covers the headers; without one, a header can get lost like on a server that does not know it."""
    uri = f"s3://{s3_bucket}/table"
    s3_server.allow_anonymous(s3_bucket, "*")
    with proxied(s3_server.endpoint) as proxy:
        options = {**s3_server.anonymous_options, "endpoint_url": proxy.endpoint}
        yield Wired(open_storage(uri, options), proxy, open_storage(uri, s3_server.storage_options))


@pytest.fixture
def gcs(gcs_server: GcsServer, gcs_bucket: str) -> Iterator[Wired]:
    uri = f"gs://{gcs_bucket}/table"
    with proxied(gcs_server.endpoint) as proxy:
        options = {**gcs_server.storage_options, "endpoint_url": proxy.endpoint}
        yield Wired(open_storage(uri, options), proxy, open_storage(uri, gcs_server.storage_options))


@pytest.fixture
def azure(azure_server: AzureServer, azure_container: str) -> Iterator[Wired]:
    uri = f"abfss://{azure_container}/table"
    with proxied(azure_server.endpoint) as proxy:
        server = dataclasses.replace(azure_server, endpoint=proxy.endpoint)
        storage: Any = open_storage(uri, server.storage_options)
        yield Wired(storage, proxy, open_storage(uri, azure_server.storage_options))


@pytest.fixture(params=["s3", "s3_by_s3fs", "gcs", "azure"])
def wired(request: pytest.FixtureRequest) -> Wired:
    found: Wired = request.getfixturevalue(request.param)
    return found


def creates(request: Request) -> bool:
    """A conditional write, in the words of each store."""
    return (
        request.headers.get("if-none-match") == "*"
        or request.headers.get("x-goog-if-generation-match") == "0"
    )


def conditional(wired: Wired) -> list[Request]:
    return [request for request in wired.proxy.requests if creates(request)]


def test_a_put_whose_answer_was_lost_is_repeated_by_the_client_and_known_as_ours(wired: Wired) -> None:
    wired.proxy.rule = only(1, creates, Lose())
    assert wired.storage.put_if_absent("log/1", b"ours") is True
    assert len(conditional(wired)) == 2
    assert wired.direct.read("log/1") == b"ours"


def test_an_object_of_another_writer_is_not_taken_for_ours_however_often_the_client_asks(
    wired: Wired,
) -> None:
    wired.direct.put_if_absent("log/1", b"same content")
    wired.proxy.rule = only(1, creates, Lose())
    assert wired.storage.put_if_absent("log/1", b"same content") is False
    assert len(conditional(wired)) == 2


def copies(wired: Wired) -> list[Request]:
    return [request for request in wired.proxy.seen("PUT") if "x-amz-copy-source" in request.headers]


@pytest.mark.slow
class TestS3:
    @pytest.fixture(params=["s3", "s3_by_s3fs"])
    def s3(self, request: pytest.FixtureRequest) -> Wired:
        found: Wired = request.getfixturevalue(request.param)
        return found

    def test_without_any_answer_the_outcome_is_unknown_and_said_so(self, s3: Wired) -> None:
        s3.storage._fs.retries, s3.storage._fs.config_kwargs["retries"] = 2, {"max_attempts": 1}
        s3.proxy.rule = only(0, creates, Lose())
        with pytest.raises(StorageError, match="log/1: the store failed"):
            s3.storage.put_if_absent("log/1", b"ours")
        assert s3.direct.read("log/1") == b"ours"

    def test_a_server_that_is_busy_with_another_creation_is_asked_again(self, s3: Wired) -> None:
        s3.proxy.rule = only(3, creates, s3_error(409, "ConditionalRequestConflict"))
        assert s3.storage.put_if_absent("log/1", b"ours") is True
        assert len(conditional(s3)) == 4

    def test_a_server_that_stays_busy_is_given_up(self, s3: Wired, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("delta_log.storage.objects.object_store._MAX_CONFLICTS", 3)
        s3.proxy.rule = only(0, creates, s3_error(409, "ConditionalRequestConflict"))
        with pytest.raises(StorageError, match="busy with other writers"):
            s3.storage.put_if_absent("log/1", b"ours")
        assert len(conditional(s3)) == 3
        assert s3.direct.head("log/1") is None

    def test_a_busy_server_makes_a_large_upload_start_anew(self, s3: Wired) -> None:
        self.in_parts(s3.storage)
        s3.proxy.requests.clear()
        s3.proxy.rule = only(1, creates, s3_error(409, "ConditionalRequestConflict"))
        body = bytes(range(256)) * 30_000
        assert s3.storage.put_if_absent("log/1", body) is True
        assert len([r for r in s3.proxy.seen("POST") if "uploads" in r.query]) == 2
        assert s3.direct.read("log/1") == body

    def test_a_completed_upload_whose_answer_was_lost_is_known_as_ours(self, s3: Wired) -> None:
        self.in_parts(s3.storage)
        s3.proxy.requests.clear()
        s3.proxy.rule = only(1, creates, Lose())
        body = bytes(range(256)) * 30_000
        assert s3.storage.put_if_absent("log/1", body) is True
        assert s3.direct.read("log/1") == body

    def test_a_server_that_ignores_the_condition_is_refused_before_anything_is_committed(
        self, unsigned_s3: Wired
    ) -> None:
        unsigned_s3.proxy.rule = only(0, creates, Without("If-None-Match"))
        with pytest.raises(InvalidRequest, match="5 were told that they had created it.*lock"):
            unsigned_s3.storage.require_writable()
        assert list(unsigned_s3.direct.list_from("_maintenance")) == []

    def test_a_server_that_does_not_know_the_condition_is_refused(self, s3: Wired) -> None:
        s3.proxy.rule = only(0, creates, s3_error(501, "NotImplemented"))
        with pytest.raises(InvalidRequest, match="not implemented"):
            s3.storage.require_writable()

    def test_a_server_that_knows_it_for_single_requests_only_gets_those(self, unsigned_s3: Wired) -> None:
        storage, proxy = unsigned_s3.storage, unsigned_s3.proxy
        proxy.rule = only(0, lambda r: "uploadId" in r.query, Without("If-None-Match"))
        self.in_parts(storage)
        proxy.requests.clear()
        bodies = [bytes([number]) * (6 << 20) for number in range(2)]
        assert [storage.put_if_absent("log/1", body) for body in bodies] == [True, False]
        assert unsigned_s3.direct.read("log/1") == bodies[0]
        assert [r for r in proxy.seen("POST") if "uploads" in r.query] == []
        storage.put("log/1", bodies[1])
        assert [r for r in proxy.seen("POST") if "uploads" in r.query] != []

    def test_a_bucket_is_tried_out_once_and_nothing_is_left_of_it(self, s3: Wired) -> None:
        s3.storage.require_writable()
        assert 0 < len(s3.proxy.requests) < 20
        s3.proxy.requests.clear()
        s3.storage.require_writable()
        assert s3.proxy.requests == []
        assert list(s3.direct.list_from("_maintenance")) == []

    def test_a_failed_upload_is_aborted_on_the_server(self, s3: Wired) -> None:
        s3.storage.part_bytes = 5 << 20
        s3.proxy.rule = only(0, lambda r: r.query.get("partNumber") == "2", s3_error(400, "InvalidPart"))
        with (
            pytest.raises(StorageError, match="InvalidPart|said by the proxy"),
            s3.storage.open_write("data") as f,
        ):
            f.write(bytes(16 << 20))
        begun = [r for r in s3.proxy.seen("POST") if "uploads" in r.query]
        aborted = {r.query["uploadId"] for r in s3.proxy.seen("DELETE") if "uploadId" in r.query}
        assert len(begun) == len(aborted) >= 1
        assert s3.direct.head("data") is None

    @pytest.mark.parametrize("what", ["part", "begin", "complete"])
    @pytest.mark.parametrize("how", ["lost", "busy"])
    def test_a_large_object_is_written_although_an_answer_is_lost_or_the_server_busy(
        self, s3: Wired, what: str, how: str
    ) -> None:
        def is_it(request: Request) -> bool:
            return {
                "part": request.query.get("partNumber") == "2",
                "begin": "uploads" in request.query,
                "complete": request.method == "POST" and "uploadId" in request.query,
            }[what]

        s3.storage.part_bytes = 5 << 20
        content = bytes(range(256)) * (50_000)
        s3.proxy.rule = only(1, is_it, Lose() if how == "lost" else s3_error(503, "SlowDown"))
        try:
            with s3.storage.open_write("data") as file:
                file.write(content)
        except StorageError:
            # Nothing but the last answer tells s3fs that the upload is complete.
            assert (what, how) == ("complete", "lost")
            assert "x-amz-request-payer" in s3.proxy.requests[0].headers
        assert s3.direct.read("data") == content
        assert len([request for request in s3.proxy.requests if is_it(request)]) >= 2

    def test_who_may_not_write_is_told_the_right_that_is_missing(self, s3: Wired) -> None:
        s3.storage.part_bytes = 5 << 20
        s3.proxy.rule = only(
            0,
            lambda r: r.method in ("PUT", "POST") and r.path.endswith("data"),
            s3_error(403, "AccessDenied"),
        )
        with pytest.raises(AccessDenied, match="table/data.*s3:PutObject"):
            self.written(s3, [bytes(6 << 20)] * 20)
        assert s3.direct.head("data") is None

    def test_what_one_client_cannot_write_the_other_one_writes_at_the_next_try(
        self, s3_server: S3Server, s3_bucket: str
    ) -> None:
        for wired in wired_s3(s3_server, s3_bucket):
            wired.storage.part_bytes = 5 << 20
            wired.proxy.rule = only(
                0,
                lambda r: "partNumber" in r.query and "amz-sdk-request" not in r.headers,
                s3_error(400, "InvalidRequest"),
            )
            with pytest.raises(StorageError, match="InvalidRequest|Run again"):
                self.written(wired, [bytes(12 << 20)])
            self.written(wired, [bytes(12 << 20)])
            assert wired.direct.read("data") == bytes(12 << 20)

    def test_a_large_put_over_an_object_of_its_length_is_no_success_by_mistake(self, s3: Wired) -> None:
        s3.storage.multipart_bytes = s3.storage.part_bytes = 5 << 20
        s3.direct.put("data", bytes(12 << 20))
        s3.proxy.rule = only(0, lambda r: "partNumber" in r.query, s3_error(403, "AccessDenied"))
        with pytest.raises(AccessDenied):
            s3.storage.put("data", bytes([1]) * (12 << 20))
        assert s3.direct.read("data") == bytes(12 << 20)

    def test_a_large_object_that_is_given_up_is_aborted_on_the_server(self, s3: Wired) -> None:
        s3.storage.part_bytes = 5 << 20
        with pytest.raises(ValueError, match="given up"):
            self.written(s3, self.broken_off())
        begun = [r for r in s3.proxy.seen("POST") if "uploads" in r.query]
        aborted = [r for r in s3.proxy.seen("DELETE") if "uploadId" in r.query]
        assert len(begun) == len(aborted) == 1
        assert s3.direct.head("data") is None

    @staticmethod
    def written(s3: Wired, pieces: Iterable[bytes]) -> None:
        with s3.storage.open_write("data") as file:
            for piece in pieces:
                file.write(piece)

    @staticmethod
    def broken_off() -> Iterator[bytes]:
        yield bytes(16 << 20)
        raise ValueError("given up")

    def test_a_listing_that_breaks_off_goes_on_where_it_was(self, s3: Wired) -> None:
        names = [f"{number:04d}" for number in range(1500)]
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda name: s3.direct.put(f"log/{name}", b"1"), names))
        met: list[Request] = []

        def second_page(request: Request) -> bool:
            if "list-type" in request.query and not met:
                met.append(request)
                return False
            return "list-type" in request.query

        s3.proxy.rule = only(1, second_page, s3_error(503, "SlowDown"))
        assert [info.name for info in s3.storage.list_from("log")] == names
        met.clear()
        s3.proxy.rule = only(1, second_page, s3_error(503, "SlowDown"))
        span = KeySpan("log/", deep=True)
        pages = list(s3.storage.list_part(span, lambda below: below))
        assert [key for page in pages for key in page.names()] == [f"log/{name}" for name in names]

    def test_after_some_failures_in_a_row_one_client_makes_all_requests(
        self, s3_server: S3Server, s3_bucket: str
    ) -> None:
        for wired in wired_s3(s3_server, s3_bucket):
            wired.direct.put("a", b"1")
            wired.proxy.rule = only(
                0, lambda request: "amz-sdk-request" not in request.headers, s3_error(403, "Unknown")
            )
            assert [wired.storage.read("a") for _ in range(10)] == [b"1"] * 10
            by_obstore = [r for r in wired.proxy.seen("GET") if "amz-sdk-request" not in r.headers]
            assert len(by_obstore) == 3

    def test_a_process_that_was_forked_reads_and_writes(self, s3: Wired) -> None:
        s3.storage.put("a", b"1")
        child = os.fork()
        if not child:
            done = 1
            with suppress(BaseException):
                signal.alarm(60)
                s3.storage.put("b", s3.storage.read("a") + b"2")
                done = 0
            os._exit(done)
        assert os.waitpid(child, 0)[1] == 0
        assert s3.direct.read("b") == b"12"

    def test_the_server_copies_long_ranges_and_no_byte_of_them_is_read(self, s3: Wired) -> None:
        content = self.copy_source(s3)
        with s3.storage.open_write("new") as file:
            assert s3.storage.read_into(file, "source", 0, len(content)) == len(content)
            file.write(b"end")
        assert s3.direct.read("new") == content + b"end"
        assert len(copies(s3)) == 1
        assert s3.proxy.seen("GET") == []

    def test_before_a_range_that_is_copied_a_small_part_is_filled(self, s3: Wired) -> None:
        content = self.copy_source(s3)
        with s3.storage.open_write("new") as file:
            file.write(b"PAR1")
            s3.storage.read_into(file, "source", 4, len(content) - 4)
            s3.storage.read_into(file, "source", 0, len(content))
        assert s3.direct.read("new") == b"PAR1" + content[4:] + content
        filled = sorted(r.headers["range"] for r in s3.proxy.seen("GET"))
        assert filled == sorted([f"bytes=4-{(4 << 20) + 3}", f"bytes={(4 << 20) + 4}-{(5 << 20) - 1}"])
        copied = sorted(r.headers["x-amz-copy-source-range"] for r in copies(s3))
        assert copied == sorted([f"bytes={5 << 20}-{len(content) - 1}", f"bytes=0-{len(content) - 1}"])

    @pytest.mark.parametrize("status", [400, 403, 405, 501, 200])
    def test_bytes_are_read_where_the_server_does_not_copy_them(self, s3: Wired, status: int) -> None:
        """One that does not know the header answers as to a part without content."""
        content = self.copy_source(s3)
        s3.direct.put("locked", content[::-1])
        answer = Answer(200, headers={"ETag": '"empty"'}) if status == 200 else s3_error(status, "Refused")
        s3.proxy.rule = only(0, lambda r: "locked" in r.headers.get("x-amz-copy-source", ""), answer)
        self.joined(s3, "locked", "source", "locked", "source", length=len(content))
        assert s3.direct.read("new") == (content[::-1] + content) * 2
        assert len(copies(s3)) == 4

    def test_what_may_not_be_read_either_is_refused_with_the_right_that_is_missing(self, s3: Wired) -> None:
        content = self.copy_source(s3)
        s3.proxy.rule = only(0, self.is_about_the_source, s3_error(403, "AccessDenied"))
        with pytest.raises(AccessDenied, match="table/source.*s3:GetObject"):
            self.joined(s3, "source", length=len(content))
        assert s3.direct.head("new") is None

    def test_a_source_that_has_become_shorter_is_named(self, s3: Wired) -> None:
        content = self.copy_source(s3)
        with pytest.raises(StorageError, match="table/source has become shorter"):
            self.joined(s3, "source", length=len(content) + 1)
        assert s3.direct.head("new") is None

    def test_what_is_copied_is_the_object_that_was_read(self, s3: Wired) -> None:
        """Another object of the same size takes the place of a source whose footer was read."""
        content = self.copy_source(s3)
        s3.storage._note_tag("source before", '"other"')
        assert s3.storage.read("source", len(content) - 8, 8) == content[-8:]
        for number in range(9_999):
            s3.storage._note_tag(f"later {number}", '"other"')
        s3.direct.put("source", content[::-1])
        with pytest.raises(StorageError, match="table/source was overwritten"):
            self.joined(s3, "source", length=len(content))
        assert s3.direct.head("new") is None

    @staticmethod
    def is_about_the_source(request: Request) -> bool:
        reads = request.method == "GET" and request.path.endswith("/source")
        return reads or "source" in request.headers.get("x-amz-copy-source", "")

    def test_a_server_that_wants_parts_of_one_size_gets_them(
        self, s3: Wired, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("delta_log.storage.objects.s3._WITH_EQUAL_PARTS", ("127.0.0.1",))
        content = self.copy_source(s3)
        self.joined(s3, "source", "source", length=len(content))
        assert s3.direct.read("new") == content * 2
        assert copies(s3) == []
        sent = sorted(
            (r for r in s3.proxy.seen("PUT") if "partNumber" in r.query),
            key=lambda r: int(r.query["partNumber"]),
        )
        assert len({r.headers["content-length"] for r in sent[:-1]}) == 1

    def test_a_copy_whose_answer_was_lost_is_repeated(self, s3: Wired) -> None:
        content = self.copy_source(s3)
        s3.proxy.rule = only(1, lambda r: "x-amz-copy-source" in r.headers, Lose())
        with s3.storage.open_write("new") as file:
            s3.storage.read_into(file, "source", 0, len(content))
        assert s3.direct.read("new") == content
        assert len(copies(s3)) == 2

    @pytest.mark.parametrize("copied_before", [0, 1])
    def test_a_source_that_is_gone_is_missing_and_no_object_is_made(
        self, s3: Wired, copied_before: int
    ) -> None:
        content = self.copy_source(s3)
        with pytest.raises(StorageError, match="table/gone was deleted before it was copied"):
            self.joined(s3, *["source"] * copied_before, "gone", length=len(content))
        assert s3.direct.head("new") is None
        assert len([r for r in s3.proxy.seen("DELETE") if "uploadId" in r.query]) == 1

    def test_a_copy_that_runs_ends_before_its_upload_is_aborted(self, s3: Wired) -> None:
        """Otherwise the server would keep the part."""
        content, has_ended, aborted = self.copy_source(s3), threading.Event(), []

        def slow(request: Request) -> Verdict | None:
            if request.method == "DELETE":
                aborted.append(has_ended.is_set())
            return Hold(has_ended) if "x-amz-copy-source" in request.headers else None

        s3.proxy.rule = slow
        threading.Timer(1, has_ended.set).start()
        with pytest.raises(ValueError, match="given up"):
            self.given_up(s3, len(content))
        assert aborted == [True]
        assert s3.direct.head("new") is None

    @staticmethod
    def given_up(s3: Wired, length: int) -> None:
        with s3.storage.open_write("new") as file:
            s3.storage.read_into(file, "source", 0, length)
            raise ValueError("given up")

    @staticmethod
    def copy_source(s3: Wired) -> bytes:
        """Make an object of which the server can copy a range."""
        content = bytes(range(256)) * ((11 << 20) // 256)
        s3.direct.put("source", content)
        return content

    @staticmethod
    def joined(s3: Wired, *keys: str, length: int) -> None:
        """Make the object ``new`` of the first bytes of others."""
        with s3.storage.open_write("new") as file:
            for key in keys:
                s3.storage.read_into(file, key, 0, length)

    def test_a_content_that_breaks_off_is_read_again(self, s3: Wired) -> None:
        s3.direct.put("a", b"content")
        s3.proxy.rule = only(1, lambda r: r.method == "GET", Lose())
        assert s3.storage.read("a") == b"content"

    def test_without_the_right_to_list_the_message_says_what_a_missing_key_looks_like(
        self, s3_server: S3Server, s3_bucket: str
    ) -> None:
        storage = open_storage(f"s3://{s3_bucket}/table", s3_server.anonymous_options)
        for refused in (storage.read, storage.head, lambda key: list(storage.list_from(key))):
            with pytest.raises(StorageError, match="denied.*s3:ListBucket"):
                refused("no/such")

    def test_a_bucket_that_does_not_exist_is_named(self, s3_server: S3Server) -> None:
        storage = open_storage("s3://no-such-bucket/table", s3_server.storage_options)
        for refused in (
            storage.read,
            lambda key: list(storage.list_from(key)),
            lambda key: storage.put(key, b""),
        ):
            with pytest.raises(StorageError, match="there is no bucket no-such-bucket at http://127"):
                refused("key")

    def in_parts(self, storage: Any) -> None:
        storage.require_writable()
        storage._has_conditional_uploads()  # the server is asked once
        storage.multipart_bytes = storage.part_bytes = 5 << 20
