"""What an exception of Spark means for a job: an outage, which may pass, or a setting that is wrong and stays wrong.

PySpark raises a dozen unrelated kinds: of its own, of Py4J, of the JVM and of Spark Connect. Their texts are Java traces, and the
text decides, by :data:`_MEANINGS`:

1. A setting, a program or a right that is wrong: :class:`~delta_maintenance.errors.SparkMisconfigured`, which is final.
2. A master, a driver or executors that are gone: :class:`~delta_maintenance.errors.SparkUnavailable`.
3. Any other error: :class:`~delta_maintenance.errors.SparkFailed`. Repeating a job is safe, so that it may be retried.

The message keeps one line of the text. The whole text stays in ``__cause__``, which a job writes to its log.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from msgspec import Struct

from delta_log.errors import DeltaLogError, brief
from delta_maintenance.errors import SparkFailed, SparkMisconfigured, SparkUnavailable

_CAUSE_CHARACTERS = 300
_FRAME = re.compile(
    r"\s+at [^(]+\([^)]*\)\s*|\s*\.{3} \d+ (?:more|common frames omitted)\s*|Driver stacktrace:\s*"
)
#: A line of a Java trace that names an exception; Py4J writes a colon before it.
_JAVA_ERROR = re.compile(r"(?:: )?(?:[a-z_$][\w$]*\.)+\w*(?:Exception|Error|Throwable)\b.*")
_PACKAGE = re.compile(r"\b(?:[a-z_]\w*\.)+(?=[A-Z]\w*(?:Exception|Error|Failure)\b)")
_PYTHON_TRACE = "Traceback (most recent call last):"
_JVM_TRACE = "JVM stacktrace:"


class _Meaning(Struct, frozen=True):
    """What a part of an error's text, or the name of its class, means.

    :param kind: class of our error; its message is `problem`, Spark's own words, and `remedy`.
    :param at_start: ``True``: it means this only while the session is made.
    """

    pattern: str
    kind: type[SparkMisconfigured | SparkUnavailable]
    problem: str
    remedy: str
    at_start: bool = False


_LOOK = "Look at the master, its workers and the network between them and this machine."
_CORRECT = "Correct the Spark connection, the Spark properties (spark_conf) or Spark's own configuration."
_MEMORY = (
    "Often a machine or a container ran out of memory: raise spark.executor.memoryOverhead, or lower spark.executor.cores so "
    "that fewer bins are rewritten at once."
)
#: The first row that fits counts.
_MEANINGS: Sequence[_Meaning] = (
    # -- programs
    _Meaning(
        r"JAVA_GATEWAY_EXITED|UnsupportedClassVersionError",
        SparkMisconfigured,
        "Java does not start",
        "Install Java 17 or newer where the driver runs (JAVA_HOME), or use the local engine.",
    ),
    _Meaning(
        r'Cannot run program "[^"]*": .*error=(?:2|13)\b|PYTHON_VERSION_MISMATCH',
        SparkMisconfigured,
        "a machine of the cluster has not the Python that the job asks for",
        "Set spark.pyspark.python to a Python that is there on every machine.",
    ),
    # -- rights and settings
    _Meaning(
        r"AccessControlException|\bForbidden!|\bUnauthorized!|UNAUTHENTICATED|PERMISSION_DENIED|SaslException|GSSException",
        SparkMisconfigured,
        "the cluster refuses this user",
        "Correct the credentials of the Spark connection, or have the cluster's administrator give the right.",
    ),
    _Meaning(
        r"Could not parse Master URL|Invalid master URL|HADOOP_CONF_DIR or YARN_CONF_DIR must be set|unknown queue",
        SparkMisconfigured,
        "the master or its queue is not one that Spark knows",
        _CORRECT,
    ),
    # -- outages
    _Meaning(
        r"All masters are unresponsive|stopped SparkContext|on a running MetricsSystem",
        SparkUnavailable,
        "the application ended while it started: no master answered within a minute, or the master refused it",
        _LOOK,
        at_start=True,
    ),
    _Meaning(
        r"Cannot assign requested address",
        SparkMisconfigured,
        "the driver cannot listen at the address that it was given",
        "Correct spark.driver.bindAddress, spark.driver.host or SPARK_LOCAL_IP.",
    ),
    _Meaning(
        r"UnknownHostException|ConnectException|NoRouteToHostException|SocketTimeoutException|ConnectionRefusedError"
        r"|Connection refused|Failed to connect to|StatusCode\.UNAVAILABLE|Yarn application has already ended",
        SparkUnavailable,
        "the cluster cannot be reached",
        _LOOK,
    ),
    _Meaning(
        r"Master removed our application|SparkContext was shut ?down|stopped SparkContext|SparkContext (?:has been|is) stopped"
        r"|Py4JNetworkError|Answer from Java side is empty|All masters are unresponsive|connection was closed",
        SparkUnavailable,
        "the application was ended, or its driver died",
        "What the finished tasks wrote is taken over by the next try. " + _LOOK,
    ),
    _Meaning(
        r"ExecutorLostFailure|ExecutorDeadException|FetchFailed|exceeding (?:physical|virtual)? ?memory limits|OOMKilled",
        SparkUnavailable,
        "executors died again and again",
        f"{_MEMORY} What the finished tasks wrote is taken over by the next try.",
    ),
    # -- settings again, by classes that also have other reasons
    _Meaning(
        r"IllegalArgumentException|NumberFormatException|ClassNotFoundException|NoClassDefFoundError|must be a positive number"
        r"|URISyntaxException|UnsupportedOperationException",
        SparkMisconfigured,
        "Spark refuses its settings",
        _CORRECT,
        at_start=True,
    ),
)


def spark_error(error: BaseException, *, at_start: bool = False) -> DeltaLogError:
    """Return our error for one of Spark. The caller raises it from the original.

    :param at_start: Spark was starting.
    """
    text = f"{type(error).__name__}: {error}"
    cause, place = cause_of(text), "Spark cannot be started" if at_start else "Spark gave up the work"
    for meaning in _MEANINGS:
        if (at_start or not meaning.at_start) and re.search(meaning.pattern, text):
            return meaning.kind(f"{place}: {meaning.problem} ({cause}). {meaning.remedy}")
    return SparkFailed(
        f"{place} ({cause}). Run again. If it happens again, read Spark's log of the job at debug level."
    )


@contextmanager
def spark_errors(*, at_start: bool = False) -> Iterator[None]:
    """Turn the exceptions of Spark into ours. Any other exception passes unchanged, unless Spark is starting."""
    try:
        yield
    except DeltaLogError:
        raise
    except Exception as error:  # PySpark raises a dozen unrelated kinds
        if not at_start and not _is_of_spark(error):
            raise
        raise spark_error(error, at_start=at_start) from error


def _is_of_spark(error: Exception) -> bool:
    """Tell whether PySpark, Py4J or gRPC raised an exception. Py4J passes on its socket's exceptions when the JVM is gone."""
    packages = {kind.__module__.partition(".")[0] for kind in type(error).__mro__}
    return bool(packages & {"pyspark", "py4j", "grpc"}) or isinstance(error, ConnectionError)


def cause_of(text: str) -> str:
    """Return the one line of an error's text that names the cause: without frames, and without the packages of classes."""
    lines = [
        line.strip()
        for line in text.partition(_JVM_TRACE)[0].splitlines()
        if line.strip() and not _FRAME.fullmatch(line)
    ]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    named = _python_cause(text) or next((line for line in reversed(causes)), None)
    named = named or next((line for line in lines if _JAVA_ERROR.fullmatch(line)), None)
    line = named or (lines[0] if lines else "no message")
    return brief(_PACKAGE.sub("", line.removeprefix(": ")).rstrip(". "), _CAUSE_CHARACTERS)


def _python_cause(text: str) -> str | None:
    """Return the last line of the last Python traceback in a text."""
    _, trace, rest = text.partition(_JVM_TRACE)[0].rpartition(_PYTHON_TRACE)
    if not trace:
        return None
    below = (line for line in rest.splitlines() if line.strip())
    return next((line for line in below if not line[0].isspace()), None)
