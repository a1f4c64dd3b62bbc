"""A server that is further away: what it answers arrives so many milliseconds later, and requests are counted by kind.

Bytes pass as they are, so that a slow machine is not made slower than it is. Answers come one after the other on each
connection, so a request is what a client sends first after an answer.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

_REQUEST = re.compile(rb"(GET|PUT|POST|HEAD|DELETE) (\S+) HTTP/1\.1\r\n")
_CHUNK_BYTES = 1 << 18


class Distance:
    """A proxy before an object store: ``endpoint`` is its URL, ``requests`` counts the requests that passed."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.requests: Counter[str] = Counter()

    def count(self, head: bytes) -> None:
        found = _REQUEST.match(head)
        if found is not None:
            self.requests[_kind(found[1].decode(), found[2].decode())] += 1


def _kind(method: str, target: str) -> str:
    query = urlsplit(target).query
    if method == "GET" and ("list-type=2" in query or "comp=list" in query):
        return "LIST"
    if method == "POST" and (query.startswith("delete") or "comp=batch" in query):
        return "DELETE (bulk)"
    return method


@contextmanager
def at_a_distance(upstream: str, latency_ms: float) -> Iterator[Distance]:
    """Run a proxy before an object store; it delays every answer.

    :param latency_ms: milliseconds that are added to every answer.
    """
    host, _, port = urlsplit(upstream).netloc.partition(":")
    loop = asyncio.new_event_loop()
    distance = Distance("")

    async def serve(client: asyncio.StreamReader, answer: asyncio.StreamWriter) -> None:
        server, request = await asyncio.open_connection(host, int(port))
        turn = {"asks": True}

        async def there() -> None:
            while data := await client.read(_CHUNK_BYTES):
                if turn["asks"]:
                    turn["asks"] = False
                    distance.count(data[:8192])
                request.write(data)
                await request.drain()

        async def back() -> None:
            while data := await server.read(_CHUNK_BYTES):
                if not turn["asks"]:
                    turn["asks"] = True
                    await asyncio.sleep(latency_ms / 1000)
                answer.write(data)
                await answer.drain()

        tasks = [asyncio.ensure_future(there()), asyncio.ensure_future(back())]
        with suppress(ConnectionError):
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        for writer in (request, answer):
            writer.close()

    listening = loop.run_until_complete(asyncio.start_server(serve, "127.0.0.1", 0))
    distance.endpoint = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield distance
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
