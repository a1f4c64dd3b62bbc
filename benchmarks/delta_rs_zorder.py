"""Lays a table out by delta-rs, with the codec of our tables, as a program of its own: ``delta_rs_zorder.py TABLE BYTES COLUMN…``."""

import sys

import deltalake

table, target_bytes, *columns = sys.argv[1:]
properties = deltalake.WriterProperties(compression="SNAPPY")
deltalake.DeltaTable(table).optimize.z_order(
    columns, target_size=int(target_bytes), writer_properties=properties
)
