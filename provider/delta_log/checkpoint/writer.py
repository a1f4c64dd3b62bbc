"""Writing a checkpoint: the state of one version in one place, so that readers need no older commits.

Protocol sections "Checkpoints", "V2 Spec" and "Last Checkpoint File". The steps come in this order, so that a process
that dies leaves the old pointer or a complete new checkpoint:

1. Unsupported features are refused. If a complete checkpoint of the version exists, it is compared with the log and
   left alone.
2. A checkpoint is staged where no reader sees it (:mod:`delta_log.checkpoint.staged`). A V2 checkpoint takes over
   unchanged sidecars of the one before (:mod:`delta_log.checkpoint.sidecar_reuse`), where that is possible.
3. It is read back and compared with the replayed state: files by a hash of their rows, other actions one by one. A version
   checksum that disagrees with the state stops the writer as well.
4. Put-if-absent makes it visible. The sidecars that it took over must still exist, and the table must still be the one
   that was read (:mod:`delta_log.snapshot.table_identity`), before and after.
5. ``_last_checkpoint`` is moved, never backwards.

Several writers of one version do no harm: a classic checkpoint is created once, and V2 checkpoints have unique names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from delta_log.checkpoint.schema import CheckpointSchema, StatsForms
from delta_log.checkpoint.sidecar_layout import SIDECAR_ACTIONS
from delta_log.checkpoint.sidecar_reuse import SidecarReuse, find_reuse, missing
from delta_log.checkpoint.staged import StagedCheckpoint, TopFormat
from delta_log.checkpoint.state import IDENTITY, CheckpointState, identities_of, row_hash_of
from delta_log.errors import (
    CorruptLog,
    DeltaLogError,
    InvalidRequest,
    NotAFile,
    StorageError,
    TableReplaced,
    UnsupportedFeature,
    VersionNotFound,
    vanished,
)
from delta_log.log.checkpoint_reader import CheckpointReader, UnreadableCheckpoint
from delta_log.log.file_names import LAST_CHECKPOINT, SIDECAR_DIRECTORY, LogFileKind, checksum_key
from delta_log.log.last_checkpoint import (
    LastCheckpoint,
    V2Checkpoint,
    encode_last_checkpoint,
    read_last_checkpoint,
)
from delta_log.log.log_segment import Checkpoint, find_log_segment, list_log
from delta_log.runtime import Runtime
from delta_log.snapshot.counts import Counts
from delta_log.snapshot.snapshot import Snapshot
from delta_log.snapshot.table_identity import require_same_log, require_settled, taken_back
from delta_log.snapshot.version_checksum import disagreements, read_version_checksum
from delta_log.storage.storage import Storage
from delta_log.table_config import features as table_features
from delta_log.table_config.features import Operation, supports

CheckpointPolicy = Literal["classic", "v2"]
CHECKPOINT_POLICY = "delta.checkpointPolicy"
#: The pointer repeats the actions of a V2 checkpoint's top file if they are at most so many.
_FEW_ACTIONS = 30


class CheckpointMismatch(DeltaLogError):
    """A checkpoint does not hold the state that the log replays to; ``differences`` names the kinds of actions."""

    at_fault = "another writer; or this package, if nothing was published"
    when_retryable = "yes, if nothing was published"

    def __init__(self, key: str, differences: tuple[str, ...], *, published: bool) -> None:
        remedy = (
            "Another writer made it; it was left alone, and readers may use it all the same. Remove it while the "
            "commits before it are still there, and have it written again."
            if published
            else "Nothing was published. Run again; if it stays so, this is a bug to report."
        )
        super().__init__(
            f"The checkpoint {key} does not hold what the log replays to: {', '.join(differences)}. {remedy}"
        )
        self.key, self.differences, self.published = key, differences, published
        self.retryable = not published


class CheckpointResult(Struct, frozen=True):
    """The checkpoint that was written, or found.

    :param actions: the number of rows, including the rows of sidecars.
    :param policy: its kind by its content; V2 content may stand under the name of a classic checkpoint.
    :param keys: the keys of all its files; readers start from the first.
    :param stats_forms: forms of statistics, some of ``json`` and ``struct``; empty for a checkpoint that was found.
    :param already_there: a complete checkpoint of this version was found; at most the pointer was written.
    :param reused_sidecars: number of sidecars that it took over from the checkpoint before.
    :param warnings: failures to move the pointer. Readers find the checkpoint by listing all the same.
    """

    version: int
    policy: CheckpointPolicy
    actions: int
    num_add_files: int
    size_bytes: int
    keys: tuple[str, ...]
    stats_forms: tuple[str, ...] = ()
    already_there: bool = False
    reused_sidecars: int = 0
    warnings: tuple[str, ...] = ()


def write_checkpoint(
    storage: Storage,
    snapshot: Snapshot,
    runtime: Runtime,
    policy: CheckpointPolicy | None = None,
    *,
    top_format: TopFormat = "json",
    incremental: bool = True,
    sidecar_actions: int = SIDECAR_ACTIONS,
) -> CheckpointResult:
    """Write a checkpoint of a version, so that readers can open it without older commits.

    :param policy: kind of the checkpoint, classic or V2; ``None``: the table's ``delta.checkpointPolicy``, and an existing
        checkpoint of either kind will do.
    :param top_format: the format of a V2 checkpoint's first file.
    :param incremental: whether a V2 checkpoint may name sidecars of the newest checkpoint again.
    :param sidecar_actions: maximum number of actions in a sidecar or row group.
    :raises UnsupportedFeature: the protocol does not allow it; nothing was written.
    :raises InvalidRequest: the caller asks for a V2 checkpoint, which the table does not support; or the store cannot
        write safely.
    :raises CheckpointMismatch: the existing or the staged checkpoint is not the state of the log.
    :raises CorruptLog: the version checksum contradicts the log.
    :raises TableReplaced: the table was deleted or made anew; nothing of the old one is left in the log.
    :raises CommitFailed: the version's commit is an empty file, which its writer may still be filling.
    """
    table_features.require(snapshot.protocol, Operation.CHECKPOINT)
    chosen = _policy(snapshot, policy)
    storage.require_writable()
    now_ms = runtime.now_ms()
    require_settled(snapshot, now_ms)
    state = CheckpointState.of(snapshot, now_ms)
    there = _existing(storage, snapshot.version, policy)
    if there is not None:
        try:
            return _found(storage, state, there)
        except UnreadableCheckpoint:
            # An unreadable checkpoint is in the way only if it has the name of the one to write.
            if chosen == _policy_of(there) == "classic":
                raise
    writer = _Writer(storage, snapshot, runtime, now_ms, state, chosen, top_format, sidecar_actions)
    if chosen == "v2" and incremental:
        result = writer.write_incremental()
        if result is not None:
            return result
    return writer.write_full()


class _Writer(Struct, frozen=True):
    storage: Storage
    snapshot: Snapshot
    runtime: Runtime
    now_ms: int
    state: CheckpointState
    policy: CheckpointPolicy
    top_format: TopFormat
    sidecar_actions: int

    def write_incremental(self) -> CheckpointResult | None:
        """Write a checkpoint that takes over sidecars; ``None``: there are none to take over, or they are gone."""
        try:
            schema = CheckpointSchema(StatsForms.of(self.snapshot), self.snapshot)
            reuse = find_reuse(self.storage, self.snapshot, self.now_ms, schema.form, self.sidecar_actions)
            return None if reuse is None else self.write(reuse)
        except (UnreadableCheckpoint, FileNotFoundError, _SidecarsGone):
            return None

    def write_full(self) -> CheckpointResult:
        """Write all rows, from the newest checkpoint of which every row can be read, or from commits alone."""
        unusable: frozenset[str] = frozenset()
        writer = self
        while True:
            try:
                return writer.write(None)
            except UnreadableCheckpoint as failure:
                if unusable.issuperset(failure.checkpoint_keys):
                    raise
                unusable |= frozenset(failure.checkpoint_keys)
                version = self.snapshot.version
                try:
                    segment = find_log_segment(self.storage, version, unusable)
                except (CorruptLog, VersionNotFound):
                    raise failure from None
                snapshot = Snapshot(self.storage, segment)
                state = CheckpointState.of(snapshot, self.now_ms)
                writer = replace(self, snapshot=snapshot, state=state)

    def write(self, reuse: SidecarReuse | None) -> CheckpointResult:
        storage, snapshot = self.storage, self.snapshot
        schema = CheckpointSchema(StatsForms.of(snapshot), snapshot)
        staged = StagedCheckpoint(self.state, schema, reuse, self.sidecar_actions, self.policy == "v2")
        with self._dropping(staged):
            if self.policy == "v2":
                staged.write_v2(storage, self.runtime, self.top_format)
            else:
                staged.write_classic()
            _compare_staged(storage, staged)
            _compare_checksum(storage, snapshot, staged.counts)
            require_same_log(storage, snapshot)
        if not storage.put_if_absent(staged.key, staged.body):
            there = _existing(storage, snapshot.version, self.policy)
            if there is None:
                raise NotAFile(f"{storage.uri}/{staged.key}")
            return _found(storage, self.state, there)
        if reuse is not None and missing(storage, reuse.kept):
            # Their deletion began before the new checkpoint named them, and makes the new checkpoint unreadable.
            storage.delete([staged.key, *staged.own_sidecar_keys])
            raise _SidecarsGone
        try:
            require_same_log(storage, snapshot, own_checkpoint=frozenset({staged.key}))
        except TableReplaced as replaced:
            error = taken_back(storage, replaced, staged.key, staged.body)
            if error.left is None:
                with suppress(StorageError):
                    storage.delete(staged.own_sidecar_keys)
            raise error from replaced
        warnings = (*self.state.warnings, *_point_to(storage, lambda: _pointer(storage, staged)))
        return CheckpointResult(
            snapshot.version,
            self.policy,
            staged.actions,
            staged.counts.files,
            staged.size_bytes,
            staged.keys,
            staged.schema.forms.names,
            reused_sidecars=0 if reuse is None else len(reuse.kept),
            warnings=warnings,
        )

    @contextmanager
    def _dropping(self, staged: StagedCheckpoint) -> Iterator[None]:
        """Delete the sidecars written so far where a step fails: no top file names them."""
        try:
            yield
        except (DeltaLogError, FileNotFoundError):
            with suppress(StorageError):
                self.storage.delete(staged.own_sidecar_keys)
            raise


class _SidecarsGone(Exception):
    """Another writer's cleanup deleted sidecars that were to be taken over."""


def _policy(snapshot: Snapshot, asked: CheckpointPolicy | None) -> CheckpointPolicy:
    able = supports(snapshot.protocol, "v2Checkpoint")
    if asked == "v2" and not able:
        raise InvalidRequest(
            "This table cannot have V2 checkpoints: its protocol does not list the feature v2Checkpoint. Ask for a "
            "classic one, or enable the feature."
        )
    if asked is not None:
        return asked
    configured = snapshot.properties.get(CHECKPOINT_POLICY, "classic").lower()
    if configured not in ("classic", "v2"):
        raise UnsupportedFeature((f"{CHECKPOINT_POLICY}={configured}",), Operation.CHECKPOINT.value)
    return "v2" if configured == "v2" and able else "classic"


def _compare_staged(storage: Storage, staged: StagedCheckpoint) -> None:
    try:
        wrong = staged.differences(storage)
    except UnreadableCheckpoint as error:
        raise CheckpointMismatch(staged.key, (f"{error.path}: {error.why}",), published=False) from error
    if wrong:
        raise CheckpointMismatch(staged.key, wrong, published=False)


def _compare_checksum(storage: Storage, snapshot: Snapshot, counts: Counts) -> None:
    """Require that the version's checksum agrees with the counts; a broken checksum is ignored."""
    try:
        stated = read_version_checksum(storage, snapshot.version)
    except CorruptLog:
        return
    wrong = () if stated is None else disagreements(stated, snapshot, counts)
    if wrong:
        raise CorruptLog(
            checksum_key(snapshot.version),
            f"it states another {', another '.join(wrong)} than the log replays to, and no checkpoint is written "
            "before it is known which is right",
            "Have CHECKPOINT repair it (--repair-checksum, repair_checksum=True): it replaces the checksum where the commits prove "
            "what is right.",
        )


# -- an existing checkpoint --------------------------------------------------------------------------


def _existing(storage: Storage, version: int, policy: CheckpointPolicy | None) -> Checkpoint | None:
    """A complete checkpoint of this version: of several, the one that readers prefer."""
    found = [
        checkpoint
        for checkpoint in list_log(storage, version).checkpoints
        if checkpoint.version == version and policy in (None, _policy_of(checkpoint))
    ]
    return found[-1] if found else None


def _policy_of(checkpoint: Checkpoint) -> CheckpointPolicy:
    """Return the kind of a checkpoint by its name."""
    return "v2" if checkpoint.files[0].kind is LogFileKind.UUID_CHECKPOINT else "classic"


def _found(storage: Storage, state: CheckpointState, checkpoint: Checkpoint) -> CheckpointResult:
    """Compare an existing checkpoint of this version with the log, and move the pointer to it."""
    reader = CheckpointReader(storage, checkpoint)
    other = reader.other
    wrong = state.differences(other)
    live = row_hash_of(
        identities_of(batch, storage.uri) for batch in reader.batches("add", ("path", *IDENTITY[1:]))
    )
    if live != row_hash_of(state.adds(IDENTITY)):
        wrong.append("add")
    if wrong:
        raise CheckpointMismatch(checkpoint.files[0].key, tuple(wrong), published=True)
    actions = live.rows + sum(batch.num_rows for batch in reader.batches("remove", ("path",)))
    actions += 2 + len(other.transactions) + len(other.domains) + len(other.sidecars)
    actions += reader.has_v2_content  # its checkpointMetadata
    size_bytes = sum(file.info.size for file in checkpoint.files)
    size_bytes += sum(sidecar.sizeInBytes for sidecar in other.sidecars)
    top, parts = checkpoint.files[0].info, len(checkpoint.files)
    pointer = LastCheckpoint(checkpoint.version, actions, size_bytes, live.rows, parts if parts > 1 else None)
    if _policy_of(checkpoint) == "v2":
        pointer.v2Checkpoint = V2Checkpoint(top.name, top.size, top.modification_time_ms)
    version = checkpoint.version
    warnings = _point_to(storage, lambda: None if read_last_checkpoint(storage) == version else pointer)
    sidecars = [f"{SIDECAR_DIRECTORY}/{sidecar.path.rpartition('/')[2]}" for sidecar in other.sidecars]
    keys = (*(file.key for file in checkpoint.files), *sidecars)
    return CheckpointResult(
        checkpoint.version,
        "v2" if reader.has_v2_content else "classic",
        actions,
        live.rows,
        size_bytes,
        keys,
        already_there=True,
        warnings=(*state.warnings, *warnings),
    )


# -- the pointer -------------------------------------------------------------------------------------------------


def _pointer(storage: Storage, staged: StagedCheckpoint) -> LastCheckpoint:
    pointer = LastCheckpoint(staged.state.version, staged.actions, staged.size_bytes, staged.counts.files)
    if staged.top:
        info = storage.head(staged.key)
        if info is None:
            raise vanished(staged.key)
        pointer.v2Checkpoint = V2Checkpoint(
            info.name,
            info.size,
            info.modification_time_ms,
            list(staged.top) if len(staged.top) <= _FEW_ACTIONS else None,
            [replace(sidecar, tags=None) for sidecar in staged.sidecars]
            if len(staged.sidecars) <= _FEW_ACTIONS
            else None,
        )
    return pointer


def _point_to(storage: Storage, make_pointer: Callable[[], LastCheckpoint | None]) -> tuple[str, ...]:
    """Move the pointer, unless it names a newer checkpoint that exists.

    The checkpoint exists by then and the pointer is only advice, so a failure of the store is a warning.

    :param make_pointer: function that gives ``None`` where there is nothing to move.
    :return: warnings.
    """
    try:
        pointer = make_pointer()
        if pointer is None:
            return ()
        current = read_last_checkpoint(storage)
        if current is not None and current > pointer.version:
            newer = list_log(storage, current).checkpoints
            if any(checkpoint.version == current for checkpoint in newer):
                return ()
        storage.put(LAST_CHECKPOINT, encode_last_checkpoint(pointer))
    except (StorageError, OSError) as error:
        return (f"{LAST_CHECKPOINT} could not be moved to the checkpoint that was written: {error}",)
    return ()
