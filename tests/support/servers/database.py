"""Makes databases on the servers that stand for Airflow's metadata database."""

from __future__ import annotations

import secrets


def make_database(server: str, database: str = "", options: str = "") -> str:
    """Makes an empty database with a name of its own, and returns its URL for SQLAlchemy.

    :param server: its URL, without a database.
    :param database: one that is there, where the server wants one to connect to.
    :param options: the end of the statement.
    """
    from sqlalchemy import create_engine, text

    name = f"test_{secrets.token_hex(4)}"
    engine = create_engine(f"{server}/{database}", isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            connection.execute(text(f"CREATE DATABASE {name} {options}"))
    finally:
        engine.dispose()
    return f"{server}/{name}"
