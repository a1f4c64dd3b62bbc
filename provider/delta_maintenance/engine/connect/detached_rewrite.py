"""The name of a rewrite on a Spark Connect server that outlives the job that began it.

One job plans, begins the rewrite and ends (``--begin``). Another job waits for the rewrite, commits its bins and ends
(``--finish``). Between the two, any process with this name can follow the rewrite or cancel it
(:class:`~delta_maintenance.engine.connect.server.ConnectServer`).

The ids are derived from a name that the caller has drawn and kept before the first job begins. So a caller that dies finds the
rewrite again, and a job that begins it a second time is refused by the server.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from delta_maintenance.contract import SparkApplication
from delta_maintenance.contract_json import converted, whole_object

#: Environment variable with the rewrite that a job begins or finishes, as JSON.
DETACHED_REWRITE_VARIABLE = "DELTA_MAINTENANCE_DETACHED_REWRITE"


class DetachedRewrite(Struct, frozen=True, omit_defaults=True):
    """A rewrite by its ids on the server. It holds no secrets.

    :param user_id: user id of the session; the server knows sessions by user and id.
    :param bins: number of bins that the server was given; ``None``: it is not known whether the rewrite has begun. The other members are
        absent then, too.
    :param bytes_in: number of bytes that these bins read.
    :param read_version: the version that the plan was made on. The bins are committed against it.
    :param started_ms: time at which the run began, by the clock of the job that began it.
    :param spark: what the report says of the server.
    :param facts: members of the report that the plan decides.
    """

    session_id: str
    operation_id: str
    user_id: str
    bins: int | None = None
    bytes_in: int | None = None
    read_version: int | None = None
    started_ms: int | None = None
    spark: SparkApplication | None = None
    facts: Mapping[str, Any] | None = None

    @classmethod
    def named(cls, name: str, user_id: str) -> DetachedRewrite:
        """
        :param name: any text that is unique to this rewrite.
        """
        return cls(_uuid_of("session", name), _uuid_of("operation", name), user_id)

    def next(self) -> DetachedRewrite:
        """The rewrite to begin instead, if the server has forgotten this one."""
        return replace(self.named(self.operation_id, self.user_id), facts=self.facts)

    def begun(
        self, *, bins: int, bytes_in: int, read_version: int, started_ms: int, facts: Mapping[str, Any]
    ) -> DetachedRewrite:
        """This rewrite, with what the job knows that has begun it. The facts of the run's first plan stay."""
        return replace(
            self,
            bins=bins,
            bytes_in=bytes_in,
            read_version=read_version,
            started_ms=started_ms,
            facts=self.facts or facts,
        )

    def to_dict(self) -> dict[str, Any]:
        return dict(to_builtins(self))

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), sort_keys=True)

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> DetachedRewrite:
        """
        :raises ContractError: a member is missing or is not of its type.
        """
        return converted("detached rewrite", raw, cls)

    @classmethod
    def from_json(cls, text: str) -> DetachedRewrite:
        """
        :raises ContractError: the text is not such a name.
        """
        return cls.from_dict(whole_object("detached rewrite", text))


def _uuid_of(what: str, name: str) -> str:
    digest = hashlib.sha256(f"delta-maintenance {what} {name}".encode()).digest()
    return str(uuid.UUID(bytes=digest[:16], version=4))
