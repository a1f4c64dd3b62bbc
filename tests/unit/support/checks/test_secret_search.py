from __future__ import annotations

import base64
import gzip
import json
import zlib
from collections.abc import Callable
from urllib.parse import quote

import pytest
from tests.support.checks.secret_search import holds

SECRET = 'k/9+Zx"4=secret&more'


@pytest.mark.parametrize(
    "write",
    [
        str.encode,
        lambda text: quote(text, safe="").encode(),
        lambda text: json.dumps({"secret": text}).encode(),
        lambda text: base64.b64encode(text.encode()),
        lambda text: base64.urlsafe_b64encode(f"x{text}".encode()),
        lambda text: b"prefix" + base64.b64encode(f"in the midst of {text} a text".encode()),
        lambda text: gzip.compress(f"much {text} more".encode()),
        lambda text: b"before" + zlib.compress(text.encode()) + b"after",
        lambda text: base64.b64encode(gzip.compress(f"[{text}]".encode())),
        lambda text: base64.b64encode(zlib.compress(text.encode())),
        lambda text: text.encode("utf-16-le"),
    ],
)
def test_a_secret_is_found_in_each_form(write: Callable[[str], bytes]) -> None:
    content = b"log line 1\n" + write(SECRET) + b"\nlog line 3"
    assert holds(content, SECRET)
    assert not holds(content, "another secret")
