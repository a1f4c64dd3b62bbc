"""Z85 is a faithful text form of bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_log.data.z85 import decode_z85, encode_z85


@given(st.binary().map(lambda data: data + bytes(-len(data) % 4)))
def test_bytes_survive(data: bytes) -> None:
    text = encode_z85(data)
    assert decode_z85(text) == data
    assert len(text) == len(data) // 4 * 5


def test_the_example_of_the_rfc() -> None:
    assert encode_z85(bytes.fromhex("864fd26fb559f75b")) == "HelloWorld"
    assert decode_z85("HelloWorld") == bytes.fromhex("864fd26fb559f75b")


@pytest.mark.parametrize(
    "text", ["1234", "#####", "12\x00345"[:5], "1234~", "1234;", "1234ü", '1234"', "1234 "]
)
def test_what_is_not_z85_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        decode_z85(text)


def test_a_number_of_bytes_that_is_not_a_multiple_of_four_is_refused() -> None:
    with pytest.raises(ValueError):
        encode_z85(b"abc")
