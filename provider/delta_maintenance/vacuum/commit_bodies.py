"""The texts of commits that a vacuum has to know, whose log may be cleaned at any moment."""

from __future__ import annotations

from collections.abc import Iterator

from delta_log.storage.storage import Storage
from delta_maintenance.errors import VacuumRefused


def commit_bodies(
    storage: Storage, keys: list[str], so_far: str = "Nothing was deleted. Run again."
) -> Iterator[bytes]:
    """
    :param so_far: what to say of the vacuum's deletions.
    :raises VacuumRefused: a commit is gone; what it removed is not known.
    """
    try:
        yield from storage.read_many(keys)
    except FileNotFoundError as error:
        raise VacuumRefused(
            f"{error}: this commit was deleted from the log before it could be read, and what it removed has to be known. "
            f"{so_far}"
        ) from error
