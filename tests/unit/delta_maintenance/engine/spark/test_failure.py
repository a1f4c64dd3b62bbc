"""What Spark's exceptions mean. The texts were recorded from real failures of Spark 4.2, and shortened where three dots stand."""

from __future__ import annotations

import pytest

from delta_log.errors import DeltaLogError, StorageError
from delta_maintenance.engine.spark.failure import cause_of, spark_error, spark_errors
from delta_maintenance.errors import SparkFailed, SparkMisconfigured, SparkUnavailable

#: The master does not answer, or refuses the application.
NO_MASTER = """An error occurred while calling None.org.apache.spark.sql.classic.SparkSession.
: java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.
This stopped SparkContext was created at:

org.apache.spark.api.java.JavaSparkContext.<init>(JavaSparkContext.scala:58)
\tat java.base/jdk.internal.reflect.NativeConstructorAccessorImpl.newInstance0(Native Method)
\tat org.apache.spark.SparkContext.assertNotStopped(SparkContext.scala:133)
"""
EXECUTORS_DIED = """An error occurred while calling o123.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times, most recent failure: Lost \
task 0.3 in stage 3.0 (TID 9) (127.0.0.1 executor 3): ExecutorLostFailure (executor 3 exited caused by one of the running tasks) \
Reason: Command exited with code 137
Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:2916)
\t... 1 more
"""
NO_PYTHON = """Job aborted due to stage failure: ...
Caused by: java.io.IOException: Cannot run program "/no/python": error=2, No such file or directory
\tat java.base/java.lang.ProcessBuilder.start(ProcessBuilder.java:1143)
Caused by: java.io.IOException: error=2, No such file or directory
\t... 15 more
"""
PYTHON_FAILED = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/tmp/bundle.zip/delta_maintenance/engine/spark/rewriting_task.py", line 80, in rewrite_batch
ModuleNotFoundError: No module named 'msgspec'


JVM stacktrace:
org.apache.spark.api.python.PythonException: ...
"""


class Py4JJavaError(Exception):
    __module__ = "py4j.protocol"


class Py4JNetworkError(Exception):
    __module__ = "py4j.protocol"


@pytest.mark.parametrize(
    ("text", "at_start", "kind", "says"),
    [
        (
            NO_MASTER,
            True,
            SparkUnavailable,
            "Spark cannot be started: .*no master answered.*Cannot call methods on a stopped",
        ),
        (NO_MASTER, False, SparkUnavailable, "the application was ended"),
        (EXECUTORS_DIED, False, SparkUnavailable, "executors died.*code 137.*memoryOverhead"),
        (
            NO_PYTHON,
            False,
            SparkMisconfigured,
            'Cannot run program "/no/python"|No such file.*spark.pyspark.python',
        ),
        (PYTHON_FAILED, False, SparkFailed, "No module named 'msgspec'"),
        (
            "[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number.",
            True,
            SparkMisconfigured,
            "Java",
        ),
        (
            ": org.apache.spark.SparkException: Could not parse Master URL: 'spark:/x'",
            True,
            SparkMisconfigured,
            "master",
        ),
        (
            ": java.lang.NumberFormatException: Size must be specified as bytes",
            True,
            SparkMisconfigured,
            "its settings",
        ),
        (": java.lang.NumberFormatException: within the work", False, SparkFailed, "NumberFormatException"),
        (": java.net.UnknownHostException: no-such-master", True, SparkUnavailable, "cannot be reached"),
        (
            "Job aborted due to stage failure: Master removed our application: KILLED",
            False,
            SparkUnavailable,
            "was ended",
        ),
        ("Job 3 cancelled because SparkContext was shut down", False, SparkUnavailable, "was ended"),
        (
            "Application application_1 submitted by user u to unknown queue: night",
            True,
            SparkMisconfigured,
            "queue",
        ),
        ("something new", False, SparkFailed, "something new"),
    ],
)
def test_a_text_of_spark_means_an_outage_or_a_wrong_setting(
    text: str, at_start: bool, kind: type[DeltaLogError], says: str
) -> None:
    error = spark_error(Py4JJavaError(text), at_start=at_start)
    assert type(error) is kind
    assert error.retryable is (kind is not SparkMisconfigured)
    import re

    assert re.search(says, str(error)), str(error)


@pytest.mark.parametrize("text", [NO_MASTER, EXECUTORS_DIED, NO_PYTHON, PYTHON_FAILED, "", "x" * 100_000])
def test_a_message_has_one_short_line_of_the_trace(text: str) -> None:
    message = str(spark_error(Py4JJavaError(text)))
    assert message.isprintable()
    assert len(message) < 900
    assert ".scala:" not in message
    assert ".java:" not in message
    assert "--" not in message, "no flags of the command line"


def test_the_cause_is_the_innermost_one_without_packages() -> None:
    assert cause_of(NO_MASTER) == "IllegalStateException: Cannot call methods on a stopped SparkContext"
    assert cause_of(NO_PYTHON) == "IOException: error=2, No such file or directory"
    assert cause_of(PYTHON_FAILED) == "ModuleNotFoundError: No module named 'msgspec'"
    assert cause_of("") == "no message"


def test_a_jvm_that_is_gone_is_an_outage() -> None:
    for error in (
        Py4JNetworkError("Answer from Java side is empty"),
        ConnectionRefusedError(111, "Connection refused"),
    ):
        with pytest.raises(SparkUnavailable) as caught, spark_errors():
            raise error
        assert caught.value.__cause__ is error


def test_errors_that_are_not_sparks_pass_unchanged() -> None:
    for error in (StorageError("down", "p"), KeyError("a bug")):
        with pytest.raises(type(error)) as caught, spark_errors():
            raise error
        assert caught.value is error
    with pytest.raises(SparkFailed), spark_errors(at_start=True):
        raise TypeError("whatever PySpark raises while it starts")
