"""The thresholds of rewriting, each with what set it.

All were measured on two processors with files in memory, unless a line says otherwise (``./dev bench optimize``).
"""

from __future__ import annotations

# -- what is rewritten at once -------------------------------------------------------------------------------------

#: Decoded bytes of a row group of a new file, about.
ROW_GROUP_BYTES = 64 << 20
#: Decoded bytes of a segment that are worth a thread: the smallest row group that a bin is divided for.
MIN_SEGMENT_BYTES = 32 << 20
#: Bytes of a bin below which encoding takes less time than another thread needs to begin.
LITTLE_BIN_BYTES = 1 << 20
#: Encoded parts that may wait for their turn while the threads work on others.
PARTS_AHEAD = 1
#: Files that are opened at once over a network, and the most files and bytes that wait for their turn. A small file is read whole when
#: it is opened, so opening files one after the other would cost the time of a request for each.
FILES_OPENED_AT_ONCE, FILES_AHEAD, BYTES_AHEAD = 8, 16, 32 << 20

# -- small files that are decoded together ---------------------------------------------------------------------------

#: Bytes of the rows that are read at once, about, and of the files that these rows are in. Decoding many small files one by one takes
#: longer than decoding their values (400 files of 0.57 MB: 0.9 to 1.1 of the speed of delta-rs, 300 of 1.05 MB: 1.2 to 1.4).
GATHERED_BYTES = 24 << 20
#: How far off the estimate of these bytes may be, by what the pages say.
GROWTH_MARGIN = 4
#: Bytes of pages that are read at once without an estimate.
FIRST_PAGES_BYTES = 1 << 20
#: Files that are asked which leaves have Bloom filters: asking every file would cost time, and most are written alike.
BLOOM_FILTER_FILES = 8

# -- row groups that are copied --------------------------------------------------------------------------------------

#: Sizes from which on ``auto`` copies: readers of few columns take two to four times as long for row groups of a few thousand rows, and
#: no longer for row groups of 122,880 rows, which is the size of DuckDB's (``./dev bench rewritten_scans``).
LARGE_BYTES, LARGE_ROWS = 16 << 20, 122_880
#: Bytes from the end of a file on a disk that are read at once; most footers are smaller.
FOOTER_BYTES = 32 << 10
#: Bytes that are read at once over a network, and the most bytes between two wanted parts that are read with them.
COPY_AHEAD_BYTES, COPY_GAP_BYTES = 8 << 20, 1 << 20

# -- how rows are encoded --------------------------------------------------------------------------------------------

#: Share of its bytes that a column may keep when it is compressed. Columns that keep more are stored without compression: 1.12 to 1.33 of
#: the speed of delta-rs for 2,000 files of 1.1 MB, for files that are 5 % larger.
MAX_COMPRESSED_SHARE = 7 / 8
#: Rows and slices of the sample that decides. Of wide rows fewer are taken: about a mebibyte, or the 32nd part of the row group.
CODEC_SAMPLE_ROWS, CODEC_SAMPLE_SLICES = 2_000, 2
CODEC_SAMPLE_BYTES, CODEC_SAMPLE_PART = 1 << 20, 32
#: Rows of the sample that decides about dictionaries, in slices spread over the row group, since adjacent rows may be more alike than
#: others.
DICTIONARY_SAMPLE_ROWS, DICTIONARY_SAMPLE_SLICES = 4_000, 5
#: Size at which Parquet's encoder falls back to plain values.
MAX_DICTIONARY_BYTES = 1 << 20
#: Share of the plain values' bytes that a dictionary and its indexes may take.
MAX_DICTIONARY_SHARE = 0.75
#: How often each value stands, on average, in texts that come as dictionary arrays. Decoding and encoding a text takes as long either way
#: where each value stands about three times.
MIN_REPETITIONS = 4
#: Bytes of the values that Arrow encodes at once, about. A page ends between two batches, so larger ones make pages too large.
ENCODED_BATCH_BYTES = 256 << 10
#: Rows of a batch at least, which is Arrow's default, and rows of a page at most.
MIN_BATCH_ROWS, MAX_BATCH_ROWS = 1 << 10, 20_000

# -- rows that a layout sorts ----------------------------------------------------------------------------------------

#: Bytes of rows that are kept in memory while they are sorted; what does not fit goes to a local disk.
SORTED_ROWS_BYTES = 256 << 20
#: Decoded bytes that a thread takes at a time. Fewer would make too many small pieces.
CHUNK_BYTES = 32 << 20
#: Rows whose values decide the buckets. With a hundred files, sizes then differ by about two percent.
SAMPLED_ROWS = 1 << 18
MAX_BUCKETS = 1 << 14
#: Fewer bytes are read faster than mapped, and a process may have 65,000 mappings.
MAPPED_BYTES = 64 << 10

# -- manifests, row maps and verification ----------------------------------------------------------------------------

#: Manifests that are read at once: they may be large.
MANIFESTS_AT_ONCE = 8
#: Bytes of a block of a row map, and blocks that are read at once.
ROW_MAP_BLOCK_BYTES, ROW_MAP_BLOCKS_AT_ONCE = 8 << 20, 4
#: Bytes of a new file's end that are read at once; most footers and page indexes are smaller.
PAGE_INDEX_BYTES = 256 << 10
