"""Files that a VACUUM takes out of a table but keeps in the store, until a later run deletes or restores them.

``_delta_quarantine/<name>/`` holds what one vacuum took: ``manifest.json``, ``files.jsonl`` with the reason for each file,
and below ``files/`` the files under their own keys. The name is hidden, so no engine's vacuum looks there.

No order of failures loses a file:

1. The manifest is written before the first file is copied, and deleted after the last.
2. A file is copied (on a disk it gets a second name), the copy is checked, and only then is the original deleted.
3. A restoration works the same way. A file that an interruption left in both places is completed by the next run.

Others may write to the directory, so its content is not trusted (:mod:`delta_maintenance.vacuum.quarantine.record`). A
file is restored only if the record names it and a commit of the log vouches for the record. Hidden keys, such as the keys of
the log, are never restored, nor is anything that a symbolic link leads to or from. Every other file below ``files/`` is
left alone and counted.

:mod:`~delta_maintenance.vacuum.quarantine.quarantine` is one such directory,
:mod:`~delta_maintenance.vacuum.quarantine.record` what it says about itself,
:mod:`~delta_maintenance.vacuum.quarantine.restoration` the way back, and
:mod:`~delta_maintenance.vacuum.quarantine.purge` the end.
"""
