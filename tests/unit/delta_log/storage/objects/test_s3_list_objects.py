"""Pages of ListObjectsV2, as servers write them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from botocore.hooks import HierarchicalEmitter  # type: ignore[import-untyped]

from delta_log.storage.objects.s3_list_objects import ListedPage, list_page, read_page

SPACE = ' xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
TIME = datetime(2024, 1, 31, 12, 0, 0, 250_000, timezone.utc)


def body(entries: str, *, space: str = SPACE, encoding: str = "<EncodingType>url</EncodingType>") -> bytes:
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult{space}><Name>b</Name><Prefix>x</Prefix>{encoding}'
        f"{entries}</ListBucketResult>"
    ).encode()


def entry(key: str) -> str:
    return (
        f"<Contents><ETag>&quot;e&quot;</ETag><Size>7</Size><Key>{key}</Key>"
        "<LastModified>2024-01-31T12:00:00.250Z</LastModified><Owner><ID>x</ID></Owner></Contents>"
    )


@pytest.mark.parametrize("space", [SPACE, ""])
def test_keys_sizes_times_and_prefixes_are_read(space: str) -> None:
    following = "<IsTruncated>true</IsTruncated><NextContinuationToken>t&amp;1</NextContinuationToken>"
    prefixes = "<CommonPrefixes><Prefix>x/p%3D1/</Prefix></CommonPrefixes>"
    page = read_page(body(entry("x/a+b%2B%C3%BC") + entry("x/c") + prefixes + following, space=space))
    assert page.objects == [("x/a b+ü", 7, TIME.timestamp()), ("x/c", 7, TIME.timestamp())]
    assert page.prefixes == ["x/p=1/"]
    assert page.following == "t&1"


def test_without_an_encoding_keys_are_taken_as_they_are() -> None:
    page = read_page(body(entry("x/a+b%20&amp;&lt;") + "<IsTruncated>false</IsTruncated>", encoding=""))
    assert page == ListedPage([("x/a+b%20&<", 7, TIME.timestamp())], [], None)


@pytest.mark.parametrize("wrong", [b"", b"<ListBucketResult", b"<Error><Code>SlowDown</Code></Error>"])
def test_what_is_no_page_is_not_taken_for_an_empty_one(wrong: bytes) -> None:
    with pytest.raises((ET.ParseError, ValueError)):
        read_page(wrong)


class Client:
    """As botocore has it: the event, then its own reading of what the event left."""

    def __init__(self) -> None:
        self.meta = self
        self.events = HierarchicalEmitter()
        self.left = b""

    async def list(self, *answers: tuple[int, bytes]) -> Mapping[str, Any]:
        for status, answer in answers:
            response = {"status_code": status, "body": answer}
            await asyncio.sleep(0)
            self.events.emit("before-parse.s3.ListObjectsV2", response_dict=response)
            self.left = response["body"]  # type: ignore[assignment]
        return {"Contents": [{"Key": "by-botocore", "Size": 1, "LastModified": TIME}], "IsTruncated": False}


def test_pages_that_are_asked_for_together_do_not_mix() -> None:
    client = Client()

    async def both() -> list[ListedPage]:
        asked = [list_page(client, client.list((200, body(entry(f"x/{n}"))))) for n in range(3)]
        return await asyncio.gather(*asked)

    pages = asyncio.run(both())
    assert [page.objects[0][0] for page in pages] == ["x/0", "x/1", "x/2"]
    assert b"Contents" not in client.left


def test_a_repeated_request_counts_by_its_last_answer() -> None:
    client = Client()
    page = asyncio.run(list_page(client, client.list((200, body(entry("x/0"))), (200, body(entry("x/1"))))))
    assert [key for key, _, _ in page.objects] == ["x/1"]


@pytest.mark.parametrize("answer", [(503, body("")), (200, b"<broken")])
def test_what_cannot_be_read_is_left_to_botocore(answer: tuple[int, bytes]) -> None:
    client = Client()
    page = asyncio.run(list_page(client, client.list(answer)))
    assert client.left == answer[1]
    assert page.objects == [("by-botocore", 1, TIME.timestamp())]


def test_others_who_use_the_same_client_get_what_they_always_got() -> None:
    client = Client()
    asyncio.run(list_page(client, client.list((200, body(entry("x/0"))))))
    asyncio.run(client.list((200, body(entry("x/1")))))
    assert b"x/1" in client.left
