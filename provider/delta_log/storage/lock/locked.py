"""Commits through a lock table, for stores without a safe put-if-absent and for writers that already share a lock table.

One conditional write of its entry in the lock table decides commit N. Only then is the commit copied to its place:

1. If N.json is there, or the newest entry is of N or a later version, the writer has lost. It first repairs an entry whose copy
   is missing.
2. The writer puts the content into a file of its own, ``_delta_log/.tmp/N.json.<uuid>``.
3. It creates the entry E(N, that file, incomplete) if there is none. This is the moment of the commit.
4. It puts the content into N.json.
5. It marks E as complete.
6. It deletes the file of step 2.

A writer that dies after step 3 has committed. The next process does steps 4 and 5 for it: a writer before its own commit, a
reader before it trusts a listing or the absence of a commit. So a commit is never visible before it is decided, and a decided
commit is visible to every process that uses this storage.

A writer outside the lock (delta-rs from 1.6.1 on puts N.json conditionally and reads no lock table) may create N.json between
steps 3 and 4. Its content differs, and then the writer of E has lost after all. This needs a store that honours
``If-None-Match: *``. With ``conditional_put=False`` every writer must use the lock.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from typing import IO

from delta_log.errors import AccessDenied, CorruptLog, InvalidRequest, StorageError
from delta_log.storage.lock.dynamodb_lock import EXPIRY_SECONDS, LockEntry, LockTable
from delta_log.storage.storage import EnterDirectories, FileInfo, KeySpan, Storage, TreePage
from delta_log.storage.store_clock import store_clock_ms
from delta_log.storage.wrapped import WrappedStorage

_LOG_DIRECTORY = "_delta_log"
_COMMIT = re.compile(rf"{_LOG_DIRECTORY}/(\d{{20}}\.json)")
#: Files of step 2, relative to the log.
_TEMPORARY_DIRECTORY = ".tmp"
_TEMPORARY = re.compile(r"(\d{20}\.json)\.[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_DAY_MS = 24 * 60 * 60 * 1000
_ATTEMPTS = 3
#: What to do where the lock table and the log disagree.
_OLD_ENTRIES = "If this table was deleted and made anew, delete its old entries from the lock table; otherwise restore that file."
_PATIENCE_SECONDS = (0.0, 0.05, 0.1, 0.2, 0.4)


class LockedStorage(WrappedStorage):
    """Forwards to another storage, but sends commits through a lock table.

    Only :meth:`put_if_absent` creates commits.

    :param new_id: function that returns a unique text.
    :param now_s: function that returns seconds since the epoch.
    :param sleep: function that waits for so many seconds.
    """

    def __init__(
        self,
        inner: Storage,
        lock: LockTable,
        *,
        conditional_put: bool = True,
        new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
        now_s: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(inner)
        self._lock, self._conditional_put = lock, conditional_put
        self._new_id, self._now_s, self._sleep = new_id, now_s, sleep

    def require_writable(self) -> None:
        if self._conditional_put:
            self._inner.require_writable()
        self._lock.require_usable()

    # -- commits -----------------------------------------------------------------------------------------

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Create a file; a commit goes through the steps of the module's docstring.

        :raises StorageError: the outcome is unknown; reading the key back through this storage settles it.
        """
        commit = _COMMIT.fullmatch(key)
        if commit is None:
            return self._inner.put_if_absent(key, data)
        name = commit[1]
        if self._inner.head(key) is not None:
            return False
        latest = self._lock.latest()
        if latest is not None:
            self._repair(latest)
            if latest.file_name >= name:
                self._require_there(name, latest)
                return False
        entry = LockEntry(name, f"{_TEMPORARY_DIRECTORY}/{name}.{self._new_id()}")
        self._inner.put(_temporary_key(entry), data)
        if not self._claim(entry):
            self._delete_quietly(_temporary_key(entry))
            return False
        try:
            won = self._publish(key, data)
        except AccessDenied as error:
            raise StorageError(
                f"{error} The lock table holds the commit, so the next writer with that right completes it.",
                key,
            ) from error
        # Also after losing to a writer outside the lock: no process may copy this content any more.
        if self._complete(entry):
            self._delete_quietly(_temporary_key(entry))
        return won

    def _claim(self, entry: LockEntry) -> bool:
        """Does step 3; ``False``: another writer holds the version.

        The name of the file is unique, so it shows whether a request without an answer took effect. Repeating the request is
        safe, and makes an earlier one that is still on its way harmless: the first of equal requests to arrive decides.
        """
        failure: StorageError | None = None
        for _ in range(_ATTEMPTS):
            try:
                if self._lock.put_if_absent(entry):
                    return True
                holder = self._lock.get(entry.file_name)
            except StorageError as error:
                failure = error
                continue
            if holder is None:  # given up by its writer in between
                continue
            if holder.temp_path == entry.temp_path:
                return True
            self._repair(holder)
            return False
        raise StorageError(
            f"Whether {entry.file_name} was committed is not known: the lock table gave no answer "
            f"({failure or 'its entry came and went'}). "
            "The next reader or writer settles it; run again.",
            entry.file_name,
        ) from failure

    def _publish(self, key: str, data: bytes) -> bool:
        """Does step 4; ``False``: other content is there. Repeating it is harmless, because the content is the same."""
        for attempt in range(_ATTEMPTS):
            try:
                return self._create(key, data) or self._inner.read(key) == data
            except StorageError:
                if attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable")

    def _create(self, key: str, data: bytes) -> bool:
        if self._conditional_put:
            return self._inner.put_if_absent(key, data)
        if self._inner.head(key) is not None:
            return False
        # Another process may do the same in between, with the same content.
        self._inner.put(key, data)
        return True

    # -- repair ------------------------------------------------------------------------------------------

    def _repair(self, entry: LockEntry) -> None:
        """Does steps 4 and 5 for a commit of another writer."""
        if entry.complete:
            return
        key = f"{_LOG_DIRECTORY}/{entry.file_name}"
        if not self._came(key) and not self._copy(entry, key):
            return
        if self._complete(entry):
            # No process needs the file any more, and delta-rs takes its absence as the sign that all steps are done.
            self._delete_quietly(_temporary_key(entry))

    def _came(self, key: str) -> bool:
        """Wait a moment for a commit to appear in its place, and return whether it did.

        Its writer is most likely about to put it there. If another process copies it first, delta-rs 1.5.1 to 1.6.0 commits a
        second time, as the next version.
        """
        for pause in _PATIENCE_SECONDS:
            self._sleep(pause)
            if self._inner.head(key) is not None:
                return True
        return False

    def _copy(self, entry: LockEntry, key: str) -> bool:
        """Put the content of another writer's commit into its place; ``False``: there is nothing to repair any more.

        delta-rs moves the file instead of copying it, and deletes an entry that it gives up. So a missing file is judged by
        the present state of the log and of the lock table.
        """
        try:
            data: bytes | None = self._inner.read(_temporary_key(entry))
        except FileNotFoundError:
            data = None
        current = self._lock.get(entry.file_name)
        if current != entry:
            return False
        if data is not None:
            self._publish(key, data)
            return True
        if self._inner.head(key) is not None:
            return True
        raise CorruptLog(
            key,
            f"the lock table says that it is committed, and its content, {_temporary_key(entry)}, is missing",
            _OLD_ENTRIES,
        )

    def _require_there(self, name: str, latest: LockEntry) -> None:
        """Check that a version in the lock table is in the log, unless its writer gave it up.

        A version before a later entry must be in the log, too: the writer of that entry has seen it.
        """
        key = f"{_LOG_DIRECTORY}/{name}"
        if self.head(key) is None:
            entry = self._lock.get(name)
            if entry.complete if entry is not None else latest.file_name > name:
                raise CorruptLog(
                    key,
                    "the lock table says that it is committed, and it is not in the log",
                    _OLD_ENTRIES,
                )

    def _complete(self, entry: LockEntry) -> bool:
        """Does step 5. If it fails, the commit stands, and the next process repeats the step."""
        try:
            self._lock.complete(entry, int(self._now_s()) + EXPIRY_SECONDS)
        except StorageError:
            return False
        return True

    def _delete_quietly(self, key: str) -> None:
        """Delete a file that no log names. If that fails, the file stays until :meth:`remove_leftovers`."""
        with suppress(StorageError):
            self._inner.delete([key])

    def _appeared(self, key: str) -> bool:
        """Repair the commit of a missing key; return whether the caller should look again."""
        commit = _COMMIT.fullmatch(key)
        entry = self._lock.get(commit[1]) if commit is not None else None
        if entry is None:
            return False
        self._repair(entry)
        return True

    # -- reading -----------------------------------------------------------------------------------------

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        try:
            return self._inner.read(key, start, length)
        except FileNotFoundError:
            if not self._appeared(key):
                raise
        return self._inner.read(key, start, length)

    def head(self, key: str) -> FileInfo | None:
        found = self._inner.head(key)
        return self._inner.head(key) if found is None and self._appeared(key) else found

    def head_many(self, keys: Sequence[str]) -> Iterator[FileInfo | None]:
        for key, found in zip(keys, self._inner.head_many(keys), strict=True):
            yield self._inner.head(key) if found is None and self._appeared(key) else found

    def sizes_and_times(self, keys: Sequence[str]) -> tuple[list[int | None], list[int | None]]:
        sizes, times = self._inner.sizes_and_times(keys)
        for row, key in enumerate(keys):
            if times[row] is None and self._appeared(key):
                (sizes[row],), (times[row],) = self._inner.sizes_and_times([key])
        return sizes, times

    def list_from(self, directory: str, start_name: str = "") -> Iterator[FileInfo]:
        if directory == _LOG_DIRECTORY:
            self._repair_latest()
        yield from self._inner.list_from(directory, start_name)

    def list_part(self, span: KeySpan, enter: EnterDirectories) -> Iterator[TreePage]:
        if span.prefix == f"{_LOG_DIRECTORY}/":
            self._repair_latest()
        yield from self._inner.list_part(span, enter)

    def _repair_latest(self) -> None:
        # Older entries are complete: a writer commits only when the version before is in its place.
        latest = self._lock.latest()
        if latest is not None:
            self._repair(latest)

    # -- what would go around the lock -------------------------------------------------------------------

    def open_write(self, key: str) -> AbstractContextManager[IO[bytes]]:
        _refuse_commit(key)
        return self._inner.open_write(key)

    def put(self, key: str, data: bytes) -> None:
        _refuse_commit(key)
        self._inner.put(key, data)

    def take_back(self, key: str, data: bytes) -> None:
        # With an incomplete entry, the next process would put the commit in its place again.
        commit = _COMMIT.fullmatch(key)
        entry = self._lock.get(commit[1]) if commit is not None else None
        if entry is not None and not entry.complete:
            self._lock.complete(entry, int(self._now_s()) + EXPIRY_SECONDS)
        self._inner.take_back(key, data)

    def copy(self, source: str, target: str) -> bool:
        _refuse_commit(target)
        return self._inner.copy(source, target)

    # -- tidying up --------------------------------------------------------------------------------------

    def remove_leftovers(
        self, directories: Iterable[str], now_ms: int, *, dry_run: bool = False
    ) -> list[str]:
        """Also removes the files of step 2 of writers that died before step 6.

        Such a file is no longer needed when its version is decided, that is, when the log has that version or a later one.
        """
        directories = list(directories)
        removed = self._inner.remove_leftovers(directories, now_ms, dry_run=dry_run)
        if _LOG_DIRECTORY not in directories:
            return removed
        old = [
            info
            for info in self._inner.list_from(f"{_LOG_DIRECTORY}/{_TEMPORARY_DIRECTORY}")
            if info.modification_time_ms < now_ms - _DAY_MS and _TEMPORARY.fullmatch(info.name)
        ]
        if not old:
            return removed
        if not dry_run:
            # An entry that is not complete may still be copied from its file.
            self._repair_latest()
            clock_ms = store_clock_ms(self._inner, f"{_LOG_DIRECTORY}/{_TEMPORARY_DIRECTORY}", self._new_id)
            before_ms = clock_ms - _DAY_MS
            old = [info for info in old if info.modification_time_ms < before_ms]
        served = [info.key for info in old if self._is_decided(_commit_of(info))]
        if not dry_run:
            self._inner.delete(served)
        return [*removed, *served]

    def _is_decided(self, commit_name: str) -> bool:
        following = self._inner.list_from(_LOG_DIRECTORY, commit_name)
        return any(_COMMIT.fullmatch(info.key) for info in following)


def _commit_of(temporary: FileInfo) -> str:
    """Return the name of the commit that a file of step 2 belongs to."""
    return temporary.name[:25]


def _refuse_commit(key: str) -> None:
    """
    :raises InvalidRequest: the key is the key of a commit.
    """
    if _COMMIT.fullmatch(key):
        raise InvalidRequest(
            f"{key} is a commit, and commits of this table go through a lock table. Nothing was written. Create it only "
            "where there is none (put_if_absent)."
        )


def _temporary_key(entry: LockEntry) -> str:
    return f"{_LOG_DIRECTORY}/{entry.temp_path}"
