"""Commits through a lock table: writer coordination for stores, and fleets, that put-if-absent alone cannot serve.

Each commit N is decided by one conditional write of its entry in the lock table, and only then copied to its place:

1. N.json is there, or the newest entry is N's or a later one: lost. An entry whose copy is missing is repaired first.
2. The content goes to a file of its own, ``_delta_log/.tmp/N.json.<uuid>``.
3. The entry E(N, that file, incomplete) is created if there is none: this is the moment of the commit.
4. The content goes to N.json. 5. E becomes complete. 6. The file of step 2 is deleted.

Whoever dies after 3 has committed, and whoever comes next does 4 and 5 for them: a writer before its own commit, a
reader before it trusts a listing or the absence of a commit. So nothing is ever visible that was not decided, and what
was decided is visible to everybody who goes through here.

A writer outside the lock (delta-rs from 1.6.1 on puts N.json conditionally and reads no lock table) may take N.json
between 3 and 4. The content then differs from ours, and we have lost after all. For this the store must honour
``If-None-Match: *``; with ``conditional_put=False`` every writer has to use the lock.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from typing import IO

from delta_log.errors import CorruptLog, InvalidRequest, StorageError
from delta_log.storage.dynamodb_lock import EXPIRY_SECONDS, LockEntry, LockTable
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
_PATIENCE_SECONDS = (0.0, 0.05, 0.1, 0.2, 0.4)


class LockedStorage(WrappedStorage):
    """Another storage whose commits go through a lock table; everything else goes straight to it.

    :meth:`put_if_absent` alone creates commits.

    :param new_id: a text that nobody else has.
    :param now_s: seconds since the epoch.
    :param sleep: for so many seconds.
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
        """See the module for the steps.

        :raises StorageError: the outcome is unknown; reading the key back through here settles it.
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
        won = self._publish(key, data)
        # Also where we lost to a writer outside the lock: nobody may copy our content any more.
        if self._complete(entry):
            self._delete_quietly(_temporary_key(entry))
        return won

    def _claim(self, entry: LockEntry) -> bool:
        """Step 3. The holder's file tells whether an answer that got lost was a yes: its name is nobody else's.

        Asking again is safe, and fences what is still under way: the first of equal requests to arrive decides.
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
        """Step 4; ``False``: another content is there. Repeating it is harmless, for the content is the same."""
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
        # Between the two others may do the same, with the same content.
        self._inner.put(key, data)
        return True

    # -- repair ------------------------------------------------------------------------------------------

    def _repair(self, entry: LockEntry) -> None:
        """Steps 4 and 5 of a commit that was decided by somebody else."""
        if entry.complete:
            return
        key = f"{_LOG_DIRECTORY}/{entry.file_name}"
        if not self._came(key) and not self._copy(entry, key):
            return
        if self._complete(entry):
            # Nobody needs it any more, and delta-rs takes its absence for the sign that all was done.
            self._delete_quietly(_temporary_key(entry))

    def _came(self, key: str) -> bool:
        """Whether a commit is in its place; most likely its writer is about to put it there.

        It is left to do so for a moment: delta-rs 1.5.1 to 1.6.0 commit a second time, as the next version, when
        somebody else was faster with the copy.
        """
        for pause in _PATIENCE_SECONDS:
            self._sleep(pause)
            if self._inner.head(key) is not None:
                return True
        return False

    def _copy(self, entry: LockEntry, key: str) -> bool:
        """``False``: there is nothing to repair any more.

        delta-rs moves the file instead of copying it, and deletes an entry that it gives up. So what is missing is
        judged by what the log and the table say now.
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
            f"the lock table says that it is committed, and its content, {_temporary_key(entry)}, is missing. If "
            "this table was deleted and made anew, delete its old entries from the lock table; otherwise",
        )

    def _require_there(self, name: str, latest: LockEntry) -> None:
        """What the lock table says of a version holds for the log: its commit is there, or its writer gave it up.

        It is also there where the table has a later entry, whose writer followed it.
        """
        key = f"{_LOG_DIRECTORY}/{name}"
        if self.head(key) is None:
            entry = self._lock.get(name)
            if entry.complete if entry is not None else latest.file_name > name:
                raise CorruptLog(
                    key,
                    "the lock table says that it is committed, and it is not in the log. If this table was deleted "
                    "and made anew, delete its old entries from the lock table; otherwise",
                )

    def _complete(self, entry: LockEntry) -> bool:
        """Step 5. Where it fails the commit stands all the same, and the next one through here does it again."""
        try:
            self._lock.complete(entry, int(self._now_s()) + EXPIRY_SECONDS)
        except StorageError:
            return False
        return True

    def _delete_quietly(self, key: str) -> None:
        """A file that no log names; one that stays costs its few bytes until :meth:`remove_leftovers`."""
        with suppress(StorageError):
            self._inner.delete([key])

    def _appeared(self, key: str) -> bool:
        """Whether to look again for a commit that was not there."""
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
        # Older entries need no look: nobody commits before the version below is in its place.
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
        # An entry that is not complete would have the next one through here put the commit in its place again.
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
        """Besides those of the other storage, the files of step 2 that a writer left which died before step 6.

        Such a file has served once its version is decided, which a commit of that version or of a later one shows.
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
    """The name of the commit that a file of step 2 is for."""
    return temporary.name[:25]


def _refuse_commit(key: str) -> None:
    """
    :raises InvalidRequest: it is a commit's.
    """
    if _COMMIT.fullmatch(key):
        raise InvalidRequest(
            f"{key} is a commit, and commits of this table go through a lock table. Nothing was written. Create it only "
            "where there is none (put_if_absent)."
        )


def _temporary_key(entry: LockEntry) -> str:
    return f"{_LOG_DIRECTORY}/{entry.temp_path}"
