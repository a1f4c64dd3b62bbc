"""Log compactions: one file with the reconciled actions of several commits, which readers use instead of them.

Protocol section "Log Compaction Files". ``<x>.<y>.compacted.json`` stands for the commits x to y. It holds the newest add
or remove of each file (removes as well, since they may hide adds from before x), the newest transaction of each
application, the newest action of each domain (removals as well), and the newest protocol and metadata. ``commitInfo`` and
change data are left out. Each line is copied byte by byte, with members that this package does not know.

A compaction is created by put-if-absent, and only if it replays to the same state as its commits. That is checked before
it is written, and again on the file in the store.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from msgspec import Struct

from delta_log.errors import CorruptLog, DeltaLogError, InvalidRequest, TableReplaced
from delta_log.log.actions import Action, decode_actions, decode_commit
from delta_log.log.file_names import LOG_DIRECTORY, LogFile, LogFileKind
from delta_log.log.log_replay import ReplayedCommits, reconcile
from delta_log.log.log_segment import find_log_segment, list_log
from delta_log.snapshot.snapshot import Snapshot
from delta_log.snapshot.table_identity import require_same_log, taken_back, unfinished_commit
from delta_log.storage.storage import FileInfo, Storage
from delta_log.table_config import features as table_features
from delta_log.table_config.features import Operation


class CompactionMismatch(DeltaLogError):
    """A log compaction does not replay to the state of its commits; ``differences`` names the kinds of actions."""

    at_fault = "another writer; or this package, if nothing was written"
    when_retryable = "yes, if nothing was written"

    def __init__(self, key: str, differences: tuple[str, ...], *, published: bool) -> None:
        remedy = (
            "It is in the log, and readers may use it. Remove it: the commits are still there."
            if published
            else "Nothing was written. Run again; if it stays so, this is a bug to report."
        )
        super().__init__(
            f"The log compaction {key} differs from its commits in {', '.join(differences)}. {remedy}"
        )
        self.key, self.differences, self.published = key, differences, published
        self.retryable = not published


class CompactionResult(Struct, frozen=True):
    """A compaction that was written, or found.

    :param start: the first version in it; ``end`` is the last.
    :param commits_bytes: the size of the commits that it stands for.
    :param already_there: ``True`` if another process had written it, and it is right.
    """

    key: str
    start: int
    end: int
    actions: int
    size_bytes: int
    commits_bytes: int
    already_there: bool = False


def compaction_key(start: int, end: int) -> str:
    return f"{LOG_DIRECTORY}/{start:020d}.{end:020d}.compacted.json"


def write_log_compaction(
    storage: Storage, snapshot: Snapshot, start: int, end: int
) -> CompactionResult | None:
    """Write the compaction of some versions, unless it exists.

    :param snapshot: the latest version.
    :return: ``None``: the commits have no actions that count (as commits of VACUUM), so there is nothing to write.
    :raises InvalidRequest: the versions are not at least two committed ones.
    :raises UnsupportedFeature: one of these versions, or the latest, may hold actions that this package does not know.
    :raises CorruptLog: a commit is missing, or contradicts another one.
    :raises CommitFailed: the latest commit is an empty file, which its writer may still be filling.
    :raises CompactionMismatch: the compaction does not replay to the state of its commits.
    :raises TableReplaced: the table was deleted or made anew; nothing of the old one is left in the log.
    """
    table_features.require(snapshot.protocol, Operation.CHECKPOINT)
    storage.require_writable()
    if not 0 <= start < end <= snapshot.version:
        raise InvalidRequest(
            f"A log compaction of the versions {start} to {end} makes no sense at version {snapshot.version}: it takes at "
            "least two versions that were committed."
        )
    _require_protocol_before(storage, start)
    commits = _commits(storage, snapshot, start, end)
    bodies = list(storage.read_many([commit.key for commit in commits]))
    if end == snapshot.version and not bodies[-1].strip():
        raise unfinished_commit(end)
    written = [list(_lines(body, commit.key)) for commit, body in zip(commits, bodies, strict=True)]
    for _, action in chain.from_iterable(written):
        if action.protocol is not None:
            table_features.require(action.protocol, Operation.CHECKPOINT)
    replayed = _reconciled(commits, written, storage.uri)
    body = b"".join(line + b"\n" for line in _kept(replayed, written))
    if not body:
        return None
    key = compaction_key(start, end)
    _compare(replayed, body, key, storage.uri, published=False)
    created = _publish(storage, snapshot, key, body)
    found = storage.read(key)
    _compare(replayed, found, key, storage.uri, published=True)
    return CompactionResult(
        key,
        start,
        end,
        found.count(b"\n"),
        len(found),
        sum(len(body) for body in bodies),
        already_there=not created,
    )


def _publish(storage: Storage, snapshot: Snapshot, key: str, body: bytes) -> bool:
    """Create the compaction, and take it back if the table was replaced; ``False``: it existed."""
    created = storage.put_if_absent(key, body)
    try:
        require_same_log(storage, snapshot)
    except TableReplaced as replaced:
        if created:
            raise taken_back(storage, replaced, key, body) from replaced
        raise
    return created


def _require_protocol_before(storage: Storage, start: int) -> None:
    """Require that this package knows the protocol that was in force before the first of the commits."""
    if start == 0:
        return
    before = Snapshot(storage, find_log_segment(storage, start - 1))
    table_features.require(before.protocol, Operation.CHECKPOINT)


def _commits(storage: Storage, snapshot: Snapshot, start: int, end: int) -> list[LogFile]:
    listing = list_log(storage, start)
    require_same_log(storage, snapshot, listing)
    listed = listing.commits
    for version in range(start, end + 1):
        if version not in listed:
            raise CorruptLog(
                f"{LOG_DIRECTORY}/{version:020d}.json",
                "this commit is missing; a version must never be skipped",
            )
    return [listed[version] for version in range(start, end + 1)]


def _lines(body: bytes, key: str) -> Iterator[tuple[bytes, Action]]:
    """The lines of a commit, each with its action."""
    lines = [line.strip() for line in body.split(b"\n") if line.strip()]
    return zip(lines, decode_commit(body, key), strict=True)


def _reconciled(
    commits: Sequence[LogFile], written: Sequence[Sequence[tuple[bytes, Action]]], table_uri: str
) -> ReplayedCommits:
    newest_first = [
        (commit, [action for _, action in actions])
        for commit, actions in zip(reversed(commits), reversed(written), strict=True)
    ]
    return reconcile(newest_first, table_uri)


def _kept(replayed: ReplayedCommits, written: Sequence[Sequence[tuple[bytes, Action]]]) -> list[bytes]:
    """The lines whose actions still count, in the order of the commits."""
    counting: list[object] = [replayed.protocol, replayed.metadata]
    counting += [*replayed.transactions.values(), *replayed.domains.values()]
    counting += [*replayed.adds.values(), *replayed.removes.values()]
    still = {id(action) for action in counting if action is not None}
    kept = []
    for actions in written:
        for line, action in actions:
            file = action.add or action.remove
            body = file or action.metaData or action.protocol or action.txn or action.domainMetadata
            if body is not None and id(body) in still:
                kept.append(line)
    return kept


def _compare(expected: ReplayedCommits, body: bytes, key: str, table_uri: str, *, published: bool) -> None:
    info = FileInfo(key, key.rpartition("/")[2], len(body), 0)
    file = LogFile(LogFileKind.COMPACTION, 0, 1, info)
    try:
        found = reconcile([(file, decode_actions(body, key))], table_uri)
    except CorruptLog as error:
        raise CompactionMismatch(key, (error.why,), published=published) from error
    wrong = differences(expected, found)
    if wrong:
        raise CompactionMismatch(key, wrong, published=published)


def differences(expected: ReplayedCommits, found: ReplayedCommits) -> tuple[str, ...]:
    """The kinds of actions in which two replays differ."""
    compared: dict[str, tuple[Any, Any]] = {
        "protocol": (expected.protocol, found.protocol),
        "metaData": (expected.metadata, found.metadata),
        "txn": (expected.transactions, found.transactions),
        "domainMetadata": (expected.domains, found.domains),
        "add": (expected.adds, found.adds),
        "remove": (expected.removes, found.removes),
    }
    return tuple(name for name, (one, other) in compared.items() if one != other)
