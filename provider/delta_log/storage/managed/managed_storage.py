"""The storage of a table whose commits a catalog ratifies: commits appear under their own names, published or not.

Protocol section "Catalog-managed tables". Commit N goes through these steps:

1. The writer stages the commit: ``_delta_log/_staged_commits/N.<uuid>.json``.
2. It asks the catalog to ratify the file as version N. This is the moment of the commit.
3. It publishes all that is ratified and not published, in the order of versions: N.json is put if it is absent.
4. It tells the catalog up to where commits are published, which may forget them then.

A writer that dies after step 2 has committed. Readers find the commit through the catalog, and the next writer does steps 3 and 4 for
it. The same writer does so before it writes a checkpoint or a log compaction, which only published versions may have. A staged file
that the catalog does not name counts for nothing, and stays until a log cleanup deletes its version.

For readers of this storage, ``_delta_log/N.json`` is the commit that the catalog holds for version N, else the published file. There is
nothing above the newest ratified version, whatever lies in the log. The catalog is asked before the log is listed: a commit that it
forgets in between is published by then.

Where the answer to step 2 is lost, the catalog is asked which commit it holds for the version. If it has none, the same request is made
again: the name of the staged file is unique, so one of equal requests takes effect.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from heapq import merge
from typing import IO, Any

from delta_log.errors import CorruptLog, InvalidRequest, StorageError, UnsupportedFeature
from delta_log.printable import printable_logger
from delta_log.storage.managed.commit_catalog import (
    CatalogState,
    CommitCatalog,
    RatifiedCommit,
    TooManyUnpublished,
    VersionTaken,
)
from delta_log.storage.storage import FileInfo, Storage
from delta_log.storage.wrapped import WrappedStorage

_LOG = printable_logger(__name__)
_LOG_DIRECTORY = "_delta_log"
_STAGED_DIRECTORY = f"{_LOG_DIRECTORY}/_staged_commits"
_COMMIT = re.compile(rf"{_LOG_DIRECTORY}/(\d{{20}})\.json")
_VERSION = re.compile(r"(\d{20})\.(?:(\d{20})\.compacted\.json$)?")
#: What only a published version may have.
_SUMMARY = re.compile(rf"{_LOG_DIRECTORY}/(\d{{20}}\.(?:checkpoint\.|\d{{20}}\.compacted\.json$).*)")
_ATTEMPTS = 4
_FIRST_WAIT_SECONDS = 0.1


class ManagedStorage(WrappedStorage):
    """Forwards to another storage, but takes commits from a catalog, and sends them through it.

    While the catalog says that it does not manage the table, every call is forwarded as it is.

    :param new_id: function that returns a unique text without dots and slashes.
    :param sleep: function that waits for so many seconds.
    """

    def __init__(
        self,
        inner: Storage,
        catalog: CommitCatalog,
        *,
        new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(inner)
        self._catalog, self._new_id, self._sleep = catalog, new_id, sleep
        #: The last state that the catalog told. What it says of a ratified version stays true.
        self._state: CatalogState | None = None
        #: Commits that the catalog has held, as listings show them. They stay so when they are published: who has read such a commit
        #: must not take it for another one.
        self._held: dict[int, FileInfo] = {}
        self._is_unmanaged = False

    def _loaded(self) -> CatalogState | None:
        """Ask the catalog now; ``None``: it does not manage the table."""
        if not self._is_unmanaged:
            state = self._catalog.load()
            self._is_unmanaged = state is None
            if state is not None:
                self._learn(state)
        return self._state

    def _learn(self, state: CatalogState) -> None:
        # In this order: another thread that finds the state finds its commits here.
        self._held.update((commit.version, _info_of(commit)) for commit in state.commits)
        self._state = state

    def _known(self, version: int = 0) -> CatalogState | None:
        """Return the last state if it has a version, else the state now."""
        state = self._state
        return state if state is not None and state.latest_version >= version else self._loaded()

    def permissions(self) -> frozenset[str] | None:
        state = self._known()
        return None if state is None else state.permitted

    def require_writable(self) -> None:
        self._inner.require_writable()
        state = self._known()
        if state is not None and state.read_only_because is not None:
            raise UnsupportedFeature(("catalogManaged",), "commit to", state.read_only_because)

    # -- reading -----------------------------------------------------------------------------------------

    def _place(self, key: str) -> str:
        """Return the key of the file that has the content of a key.

        :raises FileNotFoundError: it is the key of a commit that the catalog has not ratified.
        """
        version = _version_of(key)
        state = None if version is None else self._known(version)
        if version is None or state is None:
            return key
        if version > state.latest_version:
            raise FileNotFoundError(key)
        commit = state.commit(version)
        return key if commit is None else _staged_key(commit)

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        place = self._place(key)
        try:
            return self._inner.read(place, start, length)
        except FileNotFoundError:
            if place == key:
                raise
        # It was published since, and the staged file was cleaned.
        return self._inner.read(key, start, length)

    def open_read(self, key: str) -> Any:
        return self._inner.open_read(self._place(key))

    def read_many(self, keys: list[str]) -> Iterator[bytes]:
        return Storage.read_many(self, keys) if self._has_commit(keys) else self._inner.read_many(keys)

    def head(self, key: str) -> FileInfo | None:
        version = _version_of(key)
        state = None if version is None else self._known(version)
        if version is None or state is None:
            return self._inner.head(key)
        if version > state.latest_version:
            return None
        if state.commit(version) is not None:
            return self._held[version]
        published = self._inner.head(key)
        return None if published is None else self._held.get(version, published)

    def head_many(self, keys: Sequence[str]) -> Iterator[FileInfo | None]:
        return Storage.head_many(self, keys) if self._has_commit(keys) else self._inner.head_many(keys)

    def sizes_and_times(self, keys: Sequence[str]) -> tuple[list[int | None], list[int | None]]:
        if self._has_commit(keys):
            return Storage.sizes_and_times(self, keys)
        return self._inner.sizes_and_times(keys)

    def _has_commit(self, keys: Sequence[str]) -> bool:
        """Tell whether a commit that the catalog decides about is among the keys."""
        return any(_version_of(key) is not None for key in keys) and self._known() is not None

    def list_from(self, directory: str, start_name: str = "") -> Iterator[FileInfo]:
        state = self._loaded() if directory == _LOG_DIRECTORY else None
        listed = self._inner.list_from(directory, start_name)
        return listed if state is None else _merged(state, self._held, listed, start_name)

    # -- commits -----------------------------------------------------------------------------------------

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Create a file; a commit goes through the steps of the module's docstring.

        :raises StorageError: the catalog or the store failed. If the error is retryable, reading the key back tells the outcome.
        :raises InvalidRequest: the commit changes what the catalog would have to be told, or has no in-commit timestamp.
        :raises CorruptLog: the catalog has forgotten a version that is published.
        """
        version = _version_of(key)
        state = None if version is None else self._known(version)
        if version is None or state is None:
            self._prepare(key)
            return self._inner.put_if_absent(key, data)
        if version <= state.latest_version:
            return False
        timestamp_ms, domains = _told_to_catalog(data)
        if self._inner.head(key) is not None:
            self._require_remembered(key, version)
            return False
        commit = self._staged(version, data, timestamp_ms)
        if not self._ratified(commit, data, domains):
            return False
        try:
            self._publish(version)
        except (StorageError, CorruptLog) as error:
            _LOG.warning("%s: version %d is committed, and not published yet: %s", self.uri, version, error)
        return True

    def _require_remembered(self, key: str, version: int) -> None:
        """
        :raises CorruptLog: the catalog does not know a version that is published.
        """
        state = self._loaded()
        if state is not None and state.latest_version < version:
            raise CorruptLog(
                key,
                f"it is published, and the newest version of the catalog is {state.latest_version}",
                "Nothing was committed. Have the catalog restored to its newest state.",
            )

    def _staged(self, version: int, data: bytes, timestamp_ms: int) -> RatifiedCommit:
        """Do step 1."""
        name = f"{version:020d}.{self._new_id()}.json"
        key = f"{_STAGED_DIRECTORY}/{name}"
        self._inner.put(key, data)
        info = self._inner.head(key)
        if info is None:
            raise StorageError(f"{key} was written, and is not there. Nothing was committed. Run again.", key)
        return RatifiedCommit(version, name, len(data), info.modification_time_ms, timestamp_ms)

    def _ratified(self, commit: RatifiedCommit, data: bytes, domains: Mapping[str, str]) -> bool:
        """Do step 2; ``False``: another commit has become the version."""
        failure: Exception | None = None
        is_open = False
        for attempt in range(_ATTEMPTS):
            try:
                self._learn(self._catalog.ratify(commit, domains))
                return True
            except TooManyUnpublished as error:
                failure = error
                self._loaded()
                self._publish(commit.version - 1)
                continue
            except VersionTaken as error:
                failure = error
            except StorageError as error:
                # A refusal says nothing about an earlier request that had no answer.
                if not error.retryable and not is_open:
                    raise
                failure, is_open = error, True
            state = self._loaded()
            if state is not None and state.latest_version >= commit.version:
                return self._holds(state, commit, data)
            self._sleep(_FIRST_WAIT_SECONDS * 2**attempt)
        raise StorageError(
            f"Whether version {commit.version} was committed is not known: the catalog gave no answer ({failure}). The next reader or writer "
            "finds out; run again.",
            commit.file_name,
        ) from failure

    def _holds(self, state: CatalogState, commit: RatifiedCommit, data: bytes) -> bool:
        """Tell whether the commit of a version is this one."""
        held = state.commit(commit.version)
        if held is not None:
            return held.file_name == commit.file_name
        # Somebody has published it, and the catalog has forgotten it. Two commits never have the same content.
        return self._inner.read(_commit_key(commit.version)) == data

    # -- publishing --------------------------------------------------------------------------------------

    def _publish(self, version: int) -> None:
        """Do steps 3 and 4 for all commits up to a version.

        :raises CorruptLog: a commit that the catalog holds is gone, or other content was published in its place.
        """
        state = self._state  # asked for by the caller just now
        commits = () if state is None else tuple(one for one in state.commits if one.version <= version)
        for commit in commits:
            self._publish_one(commit)
        if commits:
            self._learn(self._catalog.set_published(commits[-1].version))

    def _publish_one(self, commit: RatifiedCommit) -> None:
        key = _commit_key(commit.version)
        try:
            data = self._inner.read(_staged_key(commit))
        except FileNotFoundError:
            if self._inner.head(key) is not None:
                return  # published by another client, which has cleaned the staged file
            raise CorruptLog(
                _staged_key(commit),
                f"the catalog holds it as version {commit.version}, and it is not there",
                "Restore that file, or ask what deletes files of the log.",
            ) from None
        if not self._inner.put_if_absent(key, data) and self._inner.read(key) != data:
            raise CorruptLog(
                key,
                f"it is not the commit that the catalog holds for version {commit.version}",
                "Somebody has written to the table around its catalog: find out who, and replace that file by the staged commit.",
            )

    def _prepare(self, key: str) -> None:
        """Publish the commits up to the version that a checkpoint or a log compaction is about to be written for."""
        summary = _SUMMARY.fullmatch(key)
        version = None if summary is None else _last_version(summary[1])
        state = None if version is None else self._loaded()
        if version is None or state is None:
            return
        if version > state.latest_version:
            raise InvalidRequest(
                f"{key} is of a version that the catalog has not ratified. It was not written."
            )
        self._publish(version)

    # -- what would go around the catalog ----------------------------------------------------------------

    def open_write(self, key: str) -> AbstractContextManager[IO[bytes]]:
        self._refuse_commit(key)
        self._prepare(key)
        return self._inner.open_write(key)

    def put(self, key: str, data: bytes) -> None:
        self._refuse_commit(key)
        self._prepare(key)
        self._inner.put(key, data)

    def copy(self, source: str, target: str) -> bool:
        self._refuse_commit(target)
        return self._inner.copy(source, target)

    def _refuse_commit(self, key: str) -> None:
        """
        :raises InvalidRequest: the key is the key of a commit of a table that a catalog manages.
        """
        if _version_of(key) is not None and self._known() is not None:
            raise InvalidRequest(
                f"{key} is a commit, and commits of this table go through its catalog. Nothing was written. Create it only where there is "
                "none (put_if_absent)."
            )

    def take_back(self, key: str, data: bytes) -> None:
        if _version_of(key) is not None and self._known() is not None:
            raise StorageError(
                f"{key} was ratified by the catalog of the table, which takes nothing back.",
                key,
                is_final=True,
            )
        self._inner.take_back(key, data)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete files. A commit that the catalog holds is published before, and the catalog told."""
        keys = list(keys)
        if any(key.startswith(f"{_LOG_DIRECTORY}/") for key in keys):
            self._release(set(keys))
        self._inner.delete(keys)

    def _release(self, keys: set[str]) -> None:
        """
        :raises StorageError: the catalog goes on to hold a commit whose file is to be deleted.
        """
        state = self._loaded()
        for is_last in (False, True):
            held = (
                []
                if state is None
                else [c for c in state.commits if keys & {_staged_key(c), _commit_key(c.version)}]
            )
            if not held:
                return
            if is_last:
                break
            self._publish(held[-1].version)
            state = self._state
        raise StorageError(
            f"The catalog still holds version {held[-1].version}, although it was told that it is published. Nothing was deleted. Run again.",
            _staged_key(held[-1]),
        )


def _version_of(key: str) -> int | None:
    """Return the version whose commit a key names; ``None``: it names something else."""
    commit = _COMMIT.fullmatch(key)
    return None if commit is None else int(commit[1])


def _commit_key(version: int) -> str:
    return f"{_LOG_DIRECTORY}/{version:020d}.json"


def _staged_key(commit: RatifiedCommit) -> str:
    return f"{_STAGED_DIRECTORY}/{commit.file_name}"


def _info_of(commit: RatifiedCommit) -> FileInfo:
    key = _commit_key(commit.version)
    return FileInfo(key, key.rpartition("/")[2], commit.size_bytes, commit.modification_time_ms)


def _last_version(name: str) -> int | None:
    """Return the last version that a file of the log is about; ``None``: its name has none."""
    found = _VERSION.match(name)
    return None if found is None else int(found[2] or found[1])


def _merged(
    state: CatalogState, held: Mapping[int, FileInfo], listed: Iterable[FileInfo], start_name: str
) -> Iterator[FileInfo]:
    """Yield the files of a log in byte order, with the commits that the catalog holds, and nothing above its newest version.

    :param held: how to show commits that the catalog holds or has held, by version.
    """
    unpublished = [held[commit.version] for commit in state.commits]
    infos = [info for info in unpublished if info.name >= start_name]
    names = {info.name for info in infos}
    counting = (
        held.get(_version_of(info.key) or -1, info)
        for info in listed
        if info.name not in names and (_last_version(info.name) or 0) <= state.latest_version
    )
    return merge(infos, counting, key=lambda info: info.name.encode())


def _told_to_catalog(data: bytes) -> tuple[int, dict[str, str]]:
    """Return the in-commit timestamp of a commit in milliseconds, and the metadata domains that it sets.

    :raises InvalidRequest: the commit has no timestamp, or changes the table's metadata or protocol, or removes a domain.
    """
    timestamp_ms: Any = None
    domains: dict[str, str] = {}
    for line in data.splitlines():
        # Nearly all lines are files.
        if line.startswith((b'{"add":', b'{"remove":')):
            continue
        action = json.loads(line)
        domain = action.get("domainMetadata")
        if "metaData" in action or "protocol" in action or (domain is not None and domain.get("removed")):
            raise InvalidRequest(
                "The commit changes metadata or protocol of a table that a catalog manages, which the catalog would have to be told in its own "
                "terms. Nothing was committed. Make this change with an engine that does so."
            )
        if domain is not None:
            domains[domain["domain"]] = domain["configuration"]
        timestamp_ms = (action.get("commitInfo") or {}).get("inCommitTimestamp", timestamp_ms)
    if not isinstance(timestamp_ms, int):
        raise InvalidRequest(
            "The commit has no in-commit timestamp, which tables need that a catalog manages. Nothing was committed. Set "
            "delta.enableInCommitTimestamps to true with the engine that writes to the table."
        )
    return timestamp_ms, domains
