"""The bytes of Parquet files: footers, pages and indexes in Thrift. Knows neither Delta nor storage."""
