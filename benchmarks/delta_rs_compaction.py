"""Compacts a table by delta-rs, with the codec of our tables, as a program of its own: ``delta_rs_compaction.py TABLE BYTES``."""

import sys

import deltalake

table, target_bytes = sys.argv[1:]
# delta-rs does not take the codec from the table's properties.
properties = deltalake.WriterProperties(compression="SNAPPY")
deltalake.DeltaTable(table).optimize.compact(target_size=int(target_bytes), writer_properties=properties)
