"""What the footer of a file says of its writer."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delta_maintenance.rewrite.encode.writer_notes import WriterNotes, own_notes
from parquet_parts.footer import Footer


def _footer(notes: dict[str, str], created_by: str | None = None) -> Footer:
    sink = io.BytesIO()
    pq.write_table(pa.table({"x": [1]}), sink)
    footer = Footer.from_end(sink.getvalue()).with_row_groups((), 0, notes)
    if created_by is not None:
        footer.fields.put_binary(6, created_by.encode())
    return Footer.from_bytes(footer.fields.to_bytes())


@pytest.mark.parametrize(
    "writer",
    [
        "parquet-mr version 1.13.1 (build db4183109d5b734ec5930d870cdae161e408ddba)",
        "parquet-mr compatible Photon version 0.3 (build 15.4)",
        "parquet-cpp-arrow version 20.0.0",
        "parquet-rs version 55.0.0",
        "delta-rs",
        "DuckDB version v1.2.0 (build 5f5512b827)",
        "Polars",
        "Trino version 435",
    ],
)
def test_known_writers(writer: str) -> None:
    assert WriterNotes.of(_footer({}, writer)).is_known


@pytest.mark.parametrize(
    "writer", ["parquet-mr version 1.8.1 (build x)", "parquet-mr", "", "impala version 4"]
)
def test_others_are_not_known(writer: str) -> None:
    notes = WriterNotes.of(_footer({}, writer))
    assert notes == WriterNotes(is_known=False)


def test_a_new_parquet_java_gives_no_bounds_of_nan() -> None:
    assert WriterNotes.of(_footer({}, "parquet-mr version 1.13.1 (build x)")).has_true_floats
    assert not WriterNotes.of(_footer({}, "DuckDB version v1.2.0")).has_true_floats


def test_our_own_notes() -> None:
    notes = WriterNotes.of(_footer(own_notes("zstd")))
    assert notes == WriterNotes(
        is_known=True, has_true_indexes=True, has_true_list_indexes=True, codec="zstd"
    )


def test_the_note_of_old_releases_makes_column_indexes_unknown() -> None:
    notes = WriterNotes.of(_footer({"delta-maintenance.floats": "1"}))
    assert notes == WriterNotes(is_known=True)


def test_column_indexes_of_lists_by_parquet_rs_are_not_trusted() -> None:
    notes = WriterNotes.of(_footer({}, "parquet-rs version 58.3.0"))
    assert notes == WriterNotes(is_known=True, has_true_indexes=True)


def test_dates_may_be_julian() -> None:
    assert WriterNotes.of(_footer({"org.apache.spark.legacyDateTime": ""})).may_be_julian
    assert not WriterNotes.of(_footer({"org.apache.spark.version": "3.5.0"})).may_be_julian
