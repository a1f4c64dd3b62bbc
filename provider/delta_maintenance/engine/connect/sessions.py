"""The sessions on Spark Connect servers that this process has opened for its job. Loading this module loads no client."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from delta_maintenance.engine.connect.detached_rewrite import DetachedRewrite

#: Address of the server, ids, session.
_OPENED: list[tuple[str, DetachedRewrite, SparkSession]] = []


def is_connect_address(address: str) -> bool:
    """Tell whether an address names a Spark Connect server, and not a master."""
    return address.startswith("sc://")


def note_session(remote: str, ids: DetachedRewrite, session: SparkSession) -> None:
    """Remember a session that was opened.

    :param remote: the address of the server.
    """
    _OPENED.append((remote, ids, session))


def end_connect_sessions() -> bool:
    """End the sessions, with what still runs in them.

    A server keeps a session for an hour after its client is gone, and what runs in it for some minutes.

    :return: whether there were some.
    :raises SparkUnreachable: a server does not answer.
    """
    had_some = bool(_OPENED)
    while _OPENED:
        # Imported here: most jobs need no Spark.
        from delta_maintenance.engine.connect.server import ConnectServer

        remote, ids, session = _OPENED.pop()
        # Not by PySpark alone, which would ask a server that is gone for ten minutes.
        with ConnectServer(remote, ids) as server:
            server.release()
        session.stop()
    return had_some
