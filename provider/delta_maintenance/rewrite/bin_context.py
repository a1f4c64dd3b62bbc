"""What all steps of one bin share, made once: the columns of its files, their settings, and what opens its sources."""

from __future__ import annotations

from msgspec import Struct

from delta_log.storage.storage import Storage
from delta_maintenance.rewrite.copy.source_footers import CopiedFiles, copied_files_of
from delta_maintenance.rewrite.encode.writer_settings import WriterSettings
from delta_maintenance.rewrite.read.row_reader import LiveRows, stored_columns
from delta_maintenance.rewrite.read.sources import Sources
from delta_maintenance.rewrite.task import RewriteTask


class BinContext(Struct, frozen=True, eq=False):
    """A task, and what follows from it.

    :param live: reader of the rows of sources.
    :param settings: settings of the new files.
    :param copied_files: opener of sources, to copy row groups from them; ``None``: all rows are decoded.
    """

    task: RewriteTask
    storage: Storage
    live: LiveRows
    settings: WriterSettings
    copied_files: CopiedFiles | None = None

    @classmethod
    def of(cls, task: RewriteTask, storage: Storage) -> BinContext:
        stored = stored_columns(task)
        live = LiveRows(task, storage, stored)
        settings = WriterSettings.of(
            task.configuration, stored, task.reader_features, task.clustering_columns
        )
        if task.rewrite == "encode" or task.layout is not None:
            return cls(task, storage, live, settings)
        copied_files = copied_files_of(task, storage, live.schema, live.num_row_ids, settings)
        return cls(task, storage, live, *copied_files)

    @property
    def is_verified(self) -> bool:
        """Whether checksums of all rows are compared."""
        return self.task.verify == "full"

    def sources(self) -> Sources:
        # Rows that are tracked, sorted or divided are read file by file.
        opens_late = self.task.layout is None and self.task.num_outputs == 1 and not self.live.num_row_ids
        return Sources(self.task, self.storage, self.copied_files, opens_late)
