"""What the wire does to a put: answers get lost, servers are busy, ignorant or forbidding."""

from __future__ import annotations

import dataclasses
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from tests.support.servers.azure import AzureServer
from tests.support.servers.gcs import GcsServer
from tests.support.servers.proxy import (
    Answer,
    Halve,
    Lose,
    Proxy,
    Request,
    Without,
    only,
    proxied,
    s3_error,
)
from tests.support.servers.s3 import S3Server

from delta_log.errors import AccessDenied, InvalidRequest, ObjectArchived, StorageError
from delta_log.storage.objects.backoff import Backoff
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


@pytest.fixture(params=["s3", "gcs", "azure"])
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


@pytest.mark.slow
@pytest.mark.parametrize("how", [Lose(), Halve()])
def test_a_content_that_breaks_off_is_read_again(wired: Wired, how: Lose | Halve) -> None:
    wired.direct.put("a", b"content" * 100_000)
    wired.proxy.rule = only(1, lambda r: r.method == "GET", how)
    assert wired.storage.read("a") == b"content" * 100_000


@pytest.mark.slow
@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_store_that_is_busy_is_asked_again(wired: Wired, status: int) -> None:
    wired.storage.after_failure = Backoff(0.01)
    for key in ("a", "b"):
        wired.direct.put(key, b"1")
    actions: dict[str, Callable[[], object]] = {
        "read": lambda: wired.storage.read("a"),
        "list": lambda: [info.name for info in wired.storage.list_from("")],
        "create": lambda: wired.storage.put_if_absent("log/1", b"ours"),
        "copy": lambda: wired.storage.copy("a", "c"),
        "delete": lambda: wired.storage.delete(["b"]),
    }
    for action in actions.values():
        wired.proxy.rule = only(2, lambda _: True, s3_error(status, "SlowDown"))
        action()
    assert wired.direct.read("log/1") == b"ours"
    assert wired.direct.read("c") == b"1"
    assert wired.direct.head("b") is None


@pytest.mark.slow
def test_of_two_writers_of_one_object_exactly_one_creates_it(wired: Wired) -> None:
    with ThreadPoolExecutor(2) as pool:
        for number in range(1000):
            bodies = [b"first", b"second"]
            won = list(pool.map(lambda body: wired.direct.put_if_absent(f"log/{number}", body), bodies))  # noqa: B023
            assert sorted(won) == [False, True]
            assert wired.direct.read(f"log/{number}") == bodies[won.index(True)]


@pytest.mark.slow
class TestS3:
    def test_without_any_answer_the_outcome_is_unknown_and_said_so(self, s3: Wired) -> None:
        s3.storage.max_attempts = 2
        s3.proxy.rule = only(0, creates, Lose())
        with pytest.raises(StorageError, match="log/1: .* cannot be reached"):
            s3.storage.put_if_absent("log/1", b"ours")
        assert s3.direct.read("log/1") == b"ours"

    def test_a_server_that_is_busy_with_another_creation_is_asked_again(self, s3: Wired) -> None:
        s3.proxy.rule = only(3, creates, s3_error(409, "ConditionalRequestConflict"))
        assert s3.storage.put_if_absent("log/1", b"ours") is True
        assert len(conditional(s3)) == 4

    def test_a_server_that_stays_busy_is_given_up(self, s3: Wired) -> None:
        s3.storage.max_conflicts = 3
        s3.proxy.rule = only(0, creates, s3_error(409, "ConditionalRequestConflict"))
        with pytest.raises(StorageError, match="busy with other writers"):
            s3.storage.put_if_absent("log/1", b"ours")
        assert len(conditional(s3)) == 3
        assert s3.direct.head("log/1") is None

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
        with s3.storage.open_write("data") as file:
            file.write(content)
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

    def test_a_large_put_over_an_object_of_its_length_is_no_success_by_mistake(self, s3: Wired) -> None:
        s3.direct.put("data", bytes(12 << 20))
        s3.proxy.rule = only(0, lambda r: r.method == "PUT", s3_error(403, "AccessDenied"))
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

    def test_a_process_that_was_forked_is_told_how_to_be_started(self, s3: Wired) -> None:
        s3.storage.put("a", b"1")
        child = os.fork()
        if not child:
            done = 1
            with suppress(BaseException):
                signal.alarm(60)
                with pytest.raises(StorageError, match="forked.*'spawn'"):
                    s3.storage.read("a")
                done = 0
            os._exit(done)
        assert os.waitpid(child, 0)[1] == 0

    def test_deletions_whose_answer_was_lost_are_made_again(self, s3: Wired) -> None:
        s3.storage.after_failure = Backoff(0.01)
        for key in ("a", "b"):
            s3.direct.put(key, b"1")
        s3.proxy.rule = only(1, lambda r: r.method == "POST", Lose())
        s3.storage.delete(["a", "b"])
        assert list(s3.direct.list_from("")) == []

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


class TestGcs:
    def test_a_store_that_asks_for_patience_is_asked_again(self, gcs: Wired) -> None:
        gcs.storage.after_failure = Backoff(0.001)
        gcs.proxy.rule = only(2, lambda _: True, s3_error(429, "SlowDown"))
        assert gcs.storage.put_if_absent("log/1", b"ours") is True
        assert len(conditional(gcs)) == 3

    def test_a_large_object_is_one_upload_in_parts(self, gcs: Wired) -> None:
        gcs.storage.part_bytes = 5 << 20
        content = bytes(range(256)) * (12 << 12)
        gcs.proxy.rule = only(1, lambda request: "partNumber" in request.query, Lose())
        with gcs.storage.open_write("data") as file:
            file.write(content)
        assert gcs.direct.read("data") == content
        assert {request.query.get("partNumber") for request in gcs.proxy.seen("PUT")} == {"1", "2", "3"}

    def test_a_large_object_that_is_given_up_is_aborted_on_the_server(self, gcs: Wired) -> None:
        gcs.storage.part_bytes = 5 << 20
        with pytest.raises(ValueError, match="given up"):
            self.give_up(gcs.storage)
        begun = [request for request in gcs.proxy.seen("POST") if "uploads" in request.query]
        aborted = [request for request in gcs.proxy.seen("DELETE") if "uploadId" in request.query]
        assert len(begun) == len(aborted) == 1
        assert gcs.direct.head("data") is None

    @staticmethod
    def give_up(storage: Storage) -> None:
        with storage.open_write("data") as file:
            file.write(bytes(16 << 20))
            raise ValueError("given up")


@pytest.mark.slow
class TestAzure:
    @pytest.fixture
    def azure(self, azure: Wired) -> Wired:
        azure.storage.part_bytes = 1 << 20
        azure.storage.after_failure = Backoff(0.01)
        return azure

    def test_without_any_answer_the_outcome_is_unknown_and_said_so(self, azure: Wired) -> None:
        azure.storage.max_attempts = 2
        azure.proxy.rule = only(0, creates, Lose())
        with pytest.raises(StorageError, match="log/1: .* cannot be reached"):
            azure.storage.put_if_absent("log/1", b"ours")
        assert azure.direct.read("log/1") == b"ours"

    def test_deletions_whose_answer_was_lost_are_made_again(self, azure: Wired) -> None:
        names = [f"{number:03d}" for number in range(300)]
        for name in names:
            azure.direct.put(name, b"1")
        azure.proxy.rule = only(1, lambda r: r.query.get("comp") == "batch", Lose())
        azure.storage.delete(names)
        assert list(azure.direct.list_from("")) == []

    @pytest.mark.parametrize("what", ["block", "blocklist"])
    @pytest.mark.parametrize("how", [Lose(), s3_error(503, "ServerBusy")])
    def test_a_large_object_is_written_although_an_answer_is_lost_or_the_store_is_busy(
        self, azure: Wired, what: str, how: Lose | Answer
    ) -> None:
        content = bytes(range(256)) * 10_000
        azure.proxy.rule = only(1, lambda r: r.query.get("comp") == what, how)
        with azure.storage.open_write("data") as file:
            file.write(content)
        assert azure.direct.read("data") == content
        assert len([r for r in azure.proxy.requests if r.query.get("comp") == what]) >= 2

    def test_a_large_object_that_is_given_up_leaves_no_blob(self, azure: Wired) -> None:
        with pytest.raises(ValueError, match="given up"):
            TestS3.written(azure, TestS3.broken_off())
        assert [r for r in azure.proxy.requests if r.query.get("comp") == "blocklist"] == []
        assert azure.direct.head("data") is None
        assert list(azure.direct.list_from("")) == []

    def test_two_writers_of_one_large_object_mix_no_blocks(self, azure: Wired) -> None:
        contents = [bytes([number]) * (3 << 20) for number in (1, 2)]

        def write(content: bytes) -> bool:
            # The writer that ends first discards the blocks of the other one.
            with suppress(StorageError), azure.storage.open_write("data") as file:
                for start in range(0, len(content), 1 << 19):
                    file.write(content[start : start + (1 << 19)])
            return True

        for _ in range(5):
            with ThreadPoolExecutor(2) as pool:
                list(pool.map(write, contents))
            assert azure.direct.read("data") in contents

    def test_a_listing_of_the_log_begins_at_its_new_part(self, azure: Wired) -> None:
        for number in range(20):
            azure.direct.put(f"_delta_log/{number:020d}.json", b"1")
        azure.direct.put("_delta_log/_sidecars/a", b"1")
        azure.direct.put("_delta_log/_last_checkpoint", b"1")
        found = [info.name for info in azure.storage.list_from("_delta_log", f"{18:020d}.")]
        assert found == [f"{18:020d}.json", f"{19:020d}.json", "_last_checkpoint"]
        assert azure.proxy.requests[0].query["startFrom"] == f"table/_delta_log/{18:020d}"

    def test_an_archived_object_is_told(self, azure: Wired) -> None:
        azure.proxy.rule = only(0, lambda r: r.method == "GET", s3_error(409, "BlobArchived"))
        with pytest.raises(ObjectArchived, match="archived"):
            azure.storage.read("a")
        with pytest.raises(ObjectArchived, match="archived"):
            azure.storage.open_read("a")

    def test_a_creation_that_a_policy_forbids_is_not_taken_for_another_writers(self, azure: Wired) -> None:
        azure.proxy.rule = only(0, creates, s3_error(409, "BlobImmutableDueToPolicy"))
        with pytest.raises(StorageError, match="BlobImmutableDueToPolicy"):
            azure.storage.put_if_absent("a", b"1")
