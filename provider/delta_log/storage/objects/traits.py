"""What the kinds of object store can do, and in which codes they say what all of them say.

Everything else that differs is in the module of a store: its options, its credentials, and the meaning of its refusals.
"""

from __future__ import annotations

from msgspec import Struct


class StoreTraits(Struct, frozen=True):
    """One kind of object store.

    :param has_key_ranges: a listing that begins behind a key holds all greater keys, those in directories included.
    :param has_suffix_ranges: one request can read the end of an object whose size is not known.
    :param most_copied_bytes: size of the largest object that the store copies by itself, and before it answers; 0: it copies none.
    :param has_bulk_deletion: one request deletes many objects.
    :param page_keys: number of keys in a page of a listing, as the store divides it.
    :param undecided: code of a conditional put that the store gave up because of others to the same key, without a decision.
    :param no_bucket: code for a bucket or container that is not there.
    :param directory_mark: name of the metadata that make an object stand for a directory; empty: there are none.
    """

    has_key_ranges: bool
    has_suffix_ranges: bool
    most_copied_bytes: int
    has_bulk_deletion: bool
    page_keys: int
    undecided: str
    no_bucket: str
    directory_mark: str = ""


S3 = StoreTraits(
    has_key_ranges=True,
    has_suffix_ranges=True,
    most_copied_bytes=5 << 30,
    has_bulk_deletion=True,
    page_keys=1000,
    undecided="ConditionalRequestConflict",
    no_bucket="NoSuchBucket",
)
GCS = StoreTraits(
    has_key_ranges=True,
    has_suffix_ranges=True,
    most_copied_bytes=5 << 40,
    has_bulk_deletion=False,
    page_keys=1000,
    undecided="",
    no_bucket="NoSuchBucket",
)
#: A copy may go on after its request was answered, and the client does not tell; so nothing is copied by the store. A hierarchical
#: namespace promises no order of keys across directories.
AZURE = StoreTraits(
    has_key_ranges=False,
    has_suffix_ranges=False,
    most_copied_bytes=0,
    has_bulk_deletion=True,
    page_keys=5000,
    undecided="",
    no_bucket="ContainerNotFound",
    directory_mark="hdi_isfolder",
)
