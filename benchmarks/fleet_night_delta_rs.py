"""Compacts every table below a directory by delta-rs, in one process: ``fleet_night_delta_rs.py DIR``."""

import sys
from pathlib import Path

import deltalake

properties = deltalake.WriterProperties(compression="SNAPPY")
for log in sorted(Path(sys.argv[1]).glob("*/_delta_log")):
    table = deltalake.DeltaTable(str(log.parent))
    table.optimize.compact(target_size=1 << 30, writer_properties=properties)
