from __future__ import annotations

from delta_maintenance.units import format_bytes


def test_sizes_are_short() -> None:
    assert [format_bytes(n) for n in (0, 1023, 1024, 1536 << 10, 3 << 40, 5000 << 40)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "1.5 MiB",
        "3.0 TiB",
        "5000.0 TiB",
    ]
