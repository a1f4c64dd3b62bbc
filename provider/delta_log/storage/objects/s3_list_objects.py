"""Parses pages of ListObjectsV2, because botocore's general parser takes a tenth of a millisecond for each object.

botocore passes an answer to a handler before it parses it. The handler of this module reads the page and leaves the parser an
empty one. It does so only for calls made by :func:`list_page`; other users of the client get botocore's result.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from datetime import datetime
from typing import Any
from urllib.parse import unquote_plus
from xml.etree import ElementTree as ET

from msgspec import Struct, field

_EVENT = "before-parse.s3.ListObjectsV2"
_HANDLER_ID = "delta-log-listing"
_EMPTY = b'<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"/>'


class ListedPage(Struct):
    """One page of a listing.

    :ivar objects: key in the bucket, size in bytes, and time of the last change in seconds since the epoch.
    :ivar prefixes: common prefixes, with the slash at the end.
    :ivar following: the token of the next page.
    """

    objects: list[tuple[str, int, float]] = field(default_factory=list)
    prefixes: list[str] = field(default_factory=list)
    following: str | None = None


_taking: ContextVar[list[ListedPage] | None] = ContextVar("_taking", default=None)


async def list_page(client: Any, request: Awaitable[Mapping[str, Any]]) -> ListedPage:
    """Make a ListObjectsV2 request and parse its answer.

    :param request: a ListObjectsV2 by this client.
    """
    # The id makes botocore register the handler once for each client.
    client.meta.events.register(_EVENT, _take_answer, unique_id=_HANDLER_ID)
    taken: list[ListedPage] = []
    token = _taking.set(taken)
    try:
        answer = await request
    finally:
        _taking.reset(token)
    # A repeated request has several answers. Where the handler was not called, botocore has parsed the answer.
    return taken[-1] if taken else _page_of(answer)


def _take_answer(response_dict: dict[str, Any], **_: Any) -> None:
    taken = _taking.get()
    if taken is not None and response_dict["status_code"] == 200:
        # An answer that this parser cannot read is left to botocore, which reads it or reports it.
        with suppress(ET.ParseError, ValueError):
            taken.append(read_page(response_dict["body"]))
            response_dict["body"] = _EMPTY


def _page_of(answer: Mapping[str, Any]) -> ListedPage:
    return ListedPage(
        [(one["Key"], one["Size"], one["LastModified"].timestamp()) for one in answer.get("Contents", ())],
        [one["Prefix"] for one in answer.get("CommonPrefixes", ())],
        answer.get("NextContinuationToken") if answer.get("IsTruncated") else None,
    )


def read_page(body: bytes) -> ListedPage:
    """Parse the XML of a page.

    :raises xml.etree.ElementTree.ParseError: it is not XML.
    :raises ValueError: it is XML, but not such a page.
    """
    root = ET.fromstring(body)  # noqa: S314 - by the store that botocore's own parser trusts alike
    if not root.tag.endswith("ListBucketResult"):
        raise ValueError(f"{root.tag} is not a listing")
    space = root.tag.rpartition("}")[0]
    space = f"{space}}}" if space else ""
    key, size, changed = (f"{space}{name}" for name in ("Key", "Size", "LastModified"))
    is_encoded = root.findtext(f"{space}EncodingType") == "url"
    page = ListedPage()
    times: dict[str, float] = {}
    for entry in root.iterfind(f"{space}Contents"):
        name, said = entry.findtext(key, ""), entry.findtext(changed, "")
        time = times.get(said)
        if time is None:
            time = times[said] = datetime.fromisoformat(said.replace("Z", "+00:00")).timestamp()
        if is_encoded and ("%" in name or "+" in name):
            name = unquote_plus(name)
        page.objects.append((name, int(entry.findtext(size, "0")), time))
    for entry in root.iterfind(f"{space}CommonPrefixes"):
        name = entry.findtext(f"{space}Prefix", "")
        page.prefixes.append(unquote_plus(name) if is_encoded else name)
    if root.findtext(f"{space}IsTruncated") == "true":
        page.following = root.findtext(f"{space}NextContinuationToken")
    return page
