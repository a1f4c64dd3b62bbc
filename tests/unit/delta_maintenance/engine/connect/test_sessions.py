from __future__ import annotations

from delta_maintenance.engine.connect.sessions import end_connect_sessions, is_connect_address


def test_addresses_of_servers_are_told_from_masters() -> None:
    assert is_connect_address("sc://host:15002")
    assert not any(map(is_connect_address, ("local[2]", "spark://host:7077", "yarn", "")))


def test_a_process_without_sessions_has_none_to_end() -> None:
    assert not end_connect_sessions()
