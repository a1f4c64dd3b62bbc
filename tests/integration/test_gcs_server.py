"""The server of the tests for Google Cloud Storage answers obstore as the XML API is documented."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from urllib.request import urlopen

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError, GenericError, PreconditionError
from obstore.store import GCSStore
from tests.support.servers.gcs import GcsServer

if TYPE_CHECKING:
    from obstore import GetOptions
    from obstore.store import GCSCredential

_ODD_KEYS = ["a%20b", "a+b", "with space", "ünï/čødé/漢字", "#?&=;:@", "<&>\"'", "x=1/y=%2F"]


@pytest.fixture
def store(gcs_server: GcsServer, gcs_bucket: str) -> GCSStore:
    return opened(gcs_server, gcs_bucket)


def token() -> GCSCredential:
    return {"token": "of the tests", "expires_at": None}


def opened(server: GcsServer, bucket: str) -> GCSStore:
    return GCSStore(
        bucket,
        base_url=server.endpoint,
        client_options={"allow_http": True},
        credential_provider=token,
    )


def listed(pages: Iterator[Any]) -> list[str]:
    return [found["path"] for page in pages for found in page]


def test_a_created_object_is_not_created_again(store: GCSStore) -> None:
    first = obstore.put(store, "a/b", b"first", mode="create")
    with pytest.raises(AlreadyExistsError, match="<Code>PreconditionFailed</Code>"):
        obstore.put(store, "a/b", b"second", mode="create")
    assert bytes(obstore.get(store, "a/b").bytes()) == b"first"
    assert obstore.head(store, "a/b")["version"] == first["version"]


def test_one_of_sixteen_writers_creates_an_object(store: GCSStore) -> None:
    def create(writer: int) -> bool:
        try:
            obstore.put(store, f"log/{number}", str(writer).encode(), mode="create")
        except AlreadyExistsError:
            return False
        return True

    with ThreadPoolExecutor(16) as pool:
        for number in range(50):
            won = [writer for writer, has_won in enumerate(pool.map(create, range(16))) if has_won]
            assert [str(writer).encode() for writer in won] == [bytes(store.get(f"log/{number}").bytes())]


def test_an_update_names_the_generation_that_it_replaces(store: GCSStore) -> None:
    first = obstore.put(store, "a", b"1")
    second = obstore.put(store, "a", b"2", mode={"version": first["version"], "e_tag": first["e_tag"]})
    with pytest.raises(PreconditionError):
        obstore.put(store, "a", b"3", mode={"version": first["version"], "e_tag": first["e_tag"]})
    assert obstore.head(store, "a")["version"] == second["version"] != first["version"]


def test_metadata_and_attributes_are_kept(store: GCSStore) -> None:
    given = {"Content-Type": "text/x", "Cache-Control": "no-store", "token": "Some Text"}
    obstore.put(store, "a", b"1", attributes=given)
    obstore.copy(store, "a", "b")
    for key in ("a", "b"):
        assert obstore.get(store, key).attributes == given
        assert obstore.get(store, key, options={"head": True}).attributes == given


def test_ranges_are_read(store: GCSStore) -> None:
    obstore.put(store, "a", bytes(range(100)))
    assert bytes(obstore.get_range(store, "a", start=10, length=5)) == bytes(range(10, 15))
    assert bytes(obstore.get_range(store, "a", start=90, length=50)) == bytes(range(90, 100))
    last = obstore.get(store, "a", options={"range": {"suffix": 7}})
    assert (bytes(last.bytes()), last.range, last.meta["size"]) == (bytes(range(93, 100)), (93, 100), 100)
    rest = obstore.get(store, "a", options={"range": {"offset": 98}})
    assert bytes(rest.bytes()) == bytes([98, 99])
    whole = obstore.get(store, "a", options={"range": {"suffix": 700}})
    assert len(whole.bytes()) == 100


def test_a_range_behind_the_end_is_refused(store: GCSStore) -> None:
    obstore.put(store, "a", b"1")
    obstore.put(store, "empty", b"")
    assert bytes(obstore.get(store, "empty").bytes()) == b""
    behind: GetOptions = {"range": {"offset": 1}}
    last: GetOptions = {"range": {"suffix": 8}}
    for key, options in (("a", behind), ("empty", last)):
        with pytest.raises(GenericError, match="416.*<Code>InvalidRange</Code>"):
            obstore.get(store, key, options=options)


def test_a_read_may_name_the_content(store: GCSStore) -> None:
    first = obstore.put(store, "a", b"1")
    assert bytes(obstore.get(store, "a", options={"if_match": first["e_tag"]}).bytes()) == b"1"
    obstore.put(store, "a", b"2")
    with pytest.raises(PreconditionError):
        obstore.get(store, "a", options={"if_match": first["e_tag"]})
    with pytest.raises(FileNotFoundError, match="NoSuchKey"):
        obstore.get(store, "a", options={"version": first["version"]})


def test_a_listing_begins_behind_a_key(store: GCSStore) -> None:
    keys = [f"t/{day}/{name}" for day in ("d=1", "d=2") for name in ("a", "b", "b\U0001f600")] + ["t/log"]
    for key in keys:
        obstore.put(store, key, b"1")
    assert listed(obstore.list(store, "t")) == keys
    assert listed(obstore.list(store, "t", offset="t/d=1/b")) == keys[2:]
    assert listed(obstore.list(store, "t/d=2")) == keys[3:6]
    found = obstore.list_with_delimiter(store, "t")
    assert found["common_prefixes"] == ["t/d=1", "t/d=2"]
    assert [item["path"] for item in found["objects"]] == ["t/log"]
    described = obstore.head(store, "t/log")
    assert found["objects"][0]["e_tag"] == described["e_tag"]
    assert abs((found["objects"][0]["last_modified"] - described["last_modified"]).total_seconds()) < 1


def test_a_long_listing_has_pages_with_each_key_once(store: GCSStore) -> None:
    keys = [f"t/{number:04d}" for number in range(2500)]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda key: obstore.put(store, key, b"1"), keys))
        list(pool.map(lambda number: obstore.put(store, f"t/{number:04d}d/x", b"1"), range(0, 2500, 500)))
    found = obstore.list_with_delimiter(store, "t")
    assert [item["path"] for item in found["objects"]] == keys
    assert found["common_prefixes"] == [f"t/{number:04d}d" for number in range(0, 2500, 500)]
    assert listed(obstore.list(store, "t", offset="t/0499d/")) == sorted(
        [*keys[500:], *(f"t/{number:04d}d/x" for number in range(500, 2500, 500))]
    )


def test_an_upload_in_parts_is_one_object_when_it_is_completed(
    store: GCSStore, gcs_server: GcsServer
) -> None:
    content = uuid.uuid4().bytes * (12 << 16)
    obstore.put(store, "a", content, chunk_size=5 << 20, use_multipart=True, attributes={"token": "x"})
    found = obstore.get(store, "a")
    assert found.attributes["token"] == "x"
    assert bytes(found.bytes()) == content
    with pytest.raises(GenericError, match="<Code>EntityTooSmall</Code>"):
        obstore.put(store, "b", content, chunk_size=4 << 20, use_multipart=True)
    with pytest.raises(FileNotFoundError):
        obstore.head(store, "b")


def test_a_copy_may_be_conditional(store: GCSStore) -> None:
    obstore.put(store, "a", b"1")
    obstore.put(store, "b", b"2")
    with pytest.raises(AlreadyExistsError):
        obstore.copy(store, "a", "b", overwrite=False)
    obstore.copy(store, "a", "c d", overwrite=False)
    assert bytes(obstore.get(store, "c d").bytes()) == b"1"
    with pytest.raises(FileNotFoundError, match="NoSuchKey"):
        obstore.copy(store, "missing", "d")


def test_what_is_missing_is_named(store: GCSStore, gcs_server: GcsServer) -> None:
    for request in (obstore.delete, obstore.get):
        with pytest.raises(FileNotFoundError, match="<Code>NoSuchKey</Code>"):
            request(store, "missing")
    with pytest.raises(FileNotFoundError):
        obstore.head(store, "missing")
    other = opened(gcs_server, "bucket-that-is-missing")
    for use in (
        lambda: obstore.get(other, "a"),
        lambda: obstore.put(other, "a", b"1", mode="create"),
        lambda: obstore.put(other, "a", bytes(6 << 20), use_multipart=True, chunk_size=5 << 20),
        lambda: obstore.delete(other, "a"),
    ):
        with pytest.raises(FileNotFoundError, match="<Code>NoSuchBucket</Code>"):
            use()
    with pytest.raises(GenericError, match="<Code>NoSuchBucket</Code>"):
        list(obstore.list(other))


@pytest.mark.parametrize("key", _ODD_KEYS)
def test_keys_may_have_any_character(
    store: GCSStore, gcs_server: GcsServer, gcs_bucket: str, key: str
) -> None:
    obstore.put(store, key, key.encode())
    assert bytes(obstore.get(store, key).bytes()) == key.encode()
    assert gcs_server.keys(gcs_bucket) == [key]
    assert listed(obstore.list(store)) == [key]
    obstore.copy(store, key, f"{key}/copy")
    obstore.delete(store, [key, f"{key}/copy"])
    assert gcs_server.keys(gcs_bucket) == []


def test_both_interfaces_have_one_address(store: GCSStore, gcs_server: GcsServer, gcs_bucket: str) -> None:
    obstore.put(store, "a b", b"1")
    path = f"{gcs_server.endpoint}/storage/v1/b/{gcs_bucket}/o/{quote('a b')}"
    with urlopen(path) as described, urlopen(f"{path}?alt=media") as content:
        assert json.load(described)["size"] == "1"
        assert content.read() == b"1"
