"""Log compactions: one file with what several commits come to, which readers take in their place.

Protocol section "Log Compaction Files". ``<x>.<y>.compacted.json`` holds the reconciled actions of the commits x to y:
per file the newest add or remove (a remove stays, since it may hide an add of before x), per application the newest
transaction, per domain the newest statement (a removal stays as well), the newest protocol and metadata. ``commitInfo``
and change data are left out. The lines that stay are kept byte by byte, unknown members too.

A compaction is created by put-if-absent and only where a replay with it is the replay without it: that is tried before
it is written, and once more on what is found in the store.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from delta_log.errors import CorruptLog, DeltaLogError, InvalidRequest, TableReplaced
from delta_log.log.actions import Action, decode_actions
from delta_log.log.file_names import LOG_DIRECTORY, LogFile, LogFileKind
from delta_log.log.log_replay import ReplayedCommits, reconcile
from delta_log.log.log_segment import find_log_segment, list_log
from delta_log.snapshot.snapshot import Snapshot
from delta_log.snapshot.table_identity import require_same_log, taken_back
from delta_log.storage.storage import FileInfo, Storage
from delta_log.table_config import features as table_features
from delta_log.table_config.features import Operation


class CompactionMismatch(DeltaLogError):
    """A log compaction is not what its commits come to; ``differences`` names the kinds of actions."""

    def __init__(self, key: str, differences: tuple[str, ...], *, published: bool) -> None:
        remedy = (
            "It is in the log, and readers may use it. Remove it: the commits are still there."
            if published
            else "Nothing was written. If it stays so, this is a bug to report."
        )
        super().__init__(
            f"The log compaction {key} is not what its commits come to: {', '.join(differences)}. {remedy}"
        )
        self.key, self.differences, self.published = key, differences, published


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """
    :param start: the first version in it; ``end`` is the last.
    :param commits_bytes: of the commits that readers need not read any more.
    :param already_there: somebody had written it, and it is sound.
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
    """Write what the commits of some versions come to, or find it.

    :param snapshot: the latest version.
    :return: ``None``: they come to nothing, as commits of VACUUM do, and there is nothing to write.
    :raises InvalidRequest: it would not be of at least two commits that are there.
    :raises UnsupportedFeature: one of these versions, or the latest, may hold actions that we do not know.
    :raises CorruptLog: a commit is missing, or contradicts another one.
    :raises CompactionMismatch: see there.
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
    written = [list(_lines(body, commit.key)) for commit, body in zip(commits, bodies, strict=True)]
    tail = _reconciled(commits, written, storage.uri)
    for actions in written:
        for _, action in actions:
            if action.protocol is not None:
                table_features.require(action.protocol, Operation.CHECKPOINT)
    lines = _kept(tail, written)
    body = b"".join(line + b"\n" for line in lines)
    key = compaction_key(start, end)
    if not lines:
        return None
    _compare(tail, body, key, storage.uri, published=False)
    created = storage.put_if_absent(key, body)
    try:
        require_same_log(storage, snapshot)
    except TableReplaced as replaced:
        if created:
            raise taken_back(storage, replaced, key, body) from replaced
        raise
    found = storage.read(key)
    _compare(tail, found, key, storage.uri, published=True)
    return CompactionResult(
        key,
        start,
        end,
        found.count(b"\n"),
        len(found),
        sum(len(body) for body in bodies),
        already_there=not created,
    )


def _require_protocol_before(storage: Storage, start: int) -> None:
    """What held when the first of the commits was written, where it can be told."""
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
    """Each line of a commit, and the action in it."""
    lines = [line.strip() for line in body.split(b"\n") if line.strip()]
    return zip(lines, decode_actions(body, key), strict=True)


def _reconciled(
    commits: Sequence[LogFile], written: Sequence[Sequence[tuple[bytes, Action]]], table_uri: str
) -> ReplayedCommits:
    newest_first = [
        (commit, [action for _, action in actions])
        for commit, actions in zip(reversed(commits), reversed(written), strict=True)
    ]
    return reconcile(newest_first, table_uri)


def _kept(tail: ReplayedCommits, written: Sequence[Sequence[tuple[bytes, Action]]]) -> list[bytes]:
    """The lines of the actions that still count, in the order of their commits."""
    counting: list[object] = [tail.protocol, tail.metadata]
    counting += [*tail.transactions.values(), *tail.domains.values()]
    counting += [*tail.adds.values(), *tail.removes.values()]
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
    """The kinds of actions in which two replays are not the same."""
    compared: dict[str, tuple[Any, Any]] = {
        "protocol": (expected.protocol, found.protocol),
        "metaData": (expected.metadata, found.metadata),
        "txn": (expected.transactions, found.transactions),
        "domainMetadata": (expected.domains, found.domains),
        "add": (expected.adds, found.adds),
        "remove": (expected.removes, found.removes),
    }
    return tuple(name for name, (one, other) in compared.items() if one != other)
