"""VACUUM: deletes the files below a table's root that no version within the retention needs.

A vacuum runs through these modules, in this order:

1. :mod:`~delta_maintenance.vacuum.run` turns a job spec into a report and calls the steps below.
2. :mod:`~delta_maintenance.vacuum.candidates` lists the table, then reads the log. A lite vacuum takes its files from the
   log (:mod:`~delta_maintenance.vacuum.lite`) and not from a listing.
3. :mod:`~delta_maintenance.vacuum.plan.cutoff` turns the retention into a moment, and
   :mod:`~delta_maintenance.vacuum.plan` decides what may be deleted, and why. A dry run ends here.
4. :mod:`~delta_maintenance.vacuum.execution` carries the plan out, between two commits. First
   :mod:`~delta_maintenance.vacuum.proof` checks the plan against a second, independent reading of the log
   (:mod:`~delta_maintenance.vacuum.independent_replay`). Then :mod:`~delta_maintenance.vacuum.deletion` deletes in batches, and
   :mod:`~delta_maintenance.vacuum.quarantine` keeps copies if asked to. At the end
   :mod:`~delta_maintenance.vacuum.presence_check` checks that every live file is still there.
5. :mod:`~delta_maintenance.vacuum.housekeeping` deletes old quarantines and the temporary files of killed processes.

:mod:`~delta_maintenance.vacuum.quarantine.restoration` is the operation of its own that brings files back from quarantine.
"""
