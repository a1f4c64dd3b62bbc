"""The parts of a Parquet file that pyarrow does not show: the footer in Thrift, page indexes, INT96."""
