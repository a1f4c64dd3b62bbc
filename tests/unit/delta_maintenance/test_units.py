from __future__ import annotations

from delta_maintenance.units import counted, format_bytes, format_duration


def test_sizes_are_short() -> None:
    assert [format_bytes(n) for n in (0, 1023, 1024, 1536 << 10, 3 << 40, 5000 << 40)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "1.5 MiB",
        "3.0 TiB",
        "5000.0 TiB",
    ]


def test_durations_are_short() -> None:
    assert [format_duration(seconds) for seconds in (0.04, 1, 9.46, 38.14, 100, 3599.6, 7500, 360_000)] == [
        "0.0 s",
        "1 s",
        "9.5 s",
        "38 s",
        "1 min 40 s",
        "1 h 0 min",
        "2 h 5 min",
        "100 h 0 min",
    ]


def test_a_noun_agrees_with_its_number() -> None:
    assert [counted(number, "bin") for number in (0, 1, 5000)] == ["0 bins", "1 bin", "5,000 bins"]
