"""Reading commits that a vacuum needs to know, although a log cleanup may delete them at any moment."""

from __future__ import annotations

from collections.abc import Iterator

from delta_log.storage.storage import Storage
from delta_maintenance.errors import VacuumRefused


def commit_bodies(
    storage: Storage, keys: list[str], so_far: str = "Nothing was deleted. Run again."
) -> Iterator[bytes]:
    """Read the content of commits.

    :param so_far: the end of the error message, which says what the vacuum has deleted so far.
    :raises VacuumRefused: a commit is gone, so what it removed is unknown.
    """
    try:
        yield from storage.read_many(keys)
    except FileNotFoundError as error:
        raise VacuumRefused(
            f"{error}: this commit was deleted from the log before it could be read, and what it removed has to be known. "
            f"{so_far}"
        ) from error
