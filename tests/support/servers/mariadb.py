"""MariaDB, which speaks to clients as MySQL does, as the metadata database of Airflow.

MySQL's own server is in none of the registries from which the tests install programs.
"""

from __future__ import annotations

import os
import pwd
import secrets
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.environment.prerequisites import absent, require
from tests.support.servers.database import make_database
from tests.support.servers.process import running

_WHY = "it stands for MySQL as Airflow's metadata database; Debian's packages are mariadb-server-core and mariadb-client-core"
_USER = "airflow"
#: The database ends with the test, so nothing has to survive a power failure.
_SETTINGS = (
    "--no-defaults",
    "--innodb-flush-log-at-trx-commit=0",
    "--skip-log-bin",
    "--bind-address=127.0.0.1",
)


@contextmanager
def running_mariadb() -> Iterator[Callable[[], str]]:
    """Runs a server for the length of a block, and yields what makes an empty database and returns its URL for SQLAlchemy.

    MariaDB refuses to run as root. For root, the server runs as `nobody`.
    """
    program, install = require("mariadbd", _WHY), require("mariadb-install-db", _WHY)
    with tempfile.TemporaryDirectory(prefix="mariadb-") as scratch:
        directory, user = Path(scratch), None
        if os.geteuid() == 0:
            user = pwd.getpwnam("nobody").pw_uid
            directory.chmod(0o755)
        data, password = directory / "data", secrets.token_urlsafe(16)
        data.mkdir()
        first = directory / "first.sql"
        first.touch(0o600)
        first.write_text(
            f"CREATE USER IF NOT EXISTS {_USER}@'127.0.0.1' IDENTIFIED BY '{password}';\nGRANT ALL ON *.* TO {_USER}@'127.0.0.1';\n"
        )
        if user is not None:
            for path in (data, first):
                os.chown(path, user, -1)
        _make_data(install, data, user)
        settings = (*_SETTINGS, f"--datadir={data}", f"--socket={data}/socket", f"--init-file={first}")
        with running(lambda port: [program, *settings, f"--port={port}"], directory, user=user) as port:
            server = f"mysql+pymysql://{_USER}:{password}@127.0.0.1:{port}"
            yield lambda: make_database(server, options="CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci")


def _make_data(install: str, data: Path, user: int | None) -> None:
    done = subprocess.run(
        [install, "--no-defaults", f"--datadir={data}", "--auth-root-authentication-method=normal"],
        cwd=data,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        user=user,
    )
    if done.returncode:
        absent("a MariaDB that starts", f"mariadb-install-db failed: {done.stdout.strip()[-500:]}")
