"""What is refused before anything is submitted, and what the command line and environment of a job are.

Spark itself is run in the integration tests; here a program of a few lines plays spark-submit.
"""

from __future__ import annotations

import json
import logging
import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.support.environment.played_java import java_home

from airflow_delta.runners import spark_settings
from airflow_delta.runners.job_output import JobProgress
from airflow_delta.runners.job_runner import JobCannotStart, JobLost
from airflow_delta.runners.spark_submit import LineSortingHook, SparkSubmitRunner
from delta_maintenance.contract import ErrorReport, JobReport, JobSpec
from delta_maintenance.job_interface import OUTPUT_NONCE_VARIABLE, RUN_KEY_VARIABLE, STORAGE_OPTIONS_VARIABLE

SPEC = JobSpec("optimize", "/t", "run-1", engine="spark")

PLAYED_SPARK_SUBMIT = f"""#!{sys.executable}
import json, os, sys
print("26/01/01 00:00:00 INFO SparkContext: of no interest")
sys.stdout.flush()
sys.stdout.buffer.write(b"no UTF-8: \\xff \\x1b]0;title\\x07" + bytes([10]))
nonce = os.environ[{OUTPUT_NONCE_VARIABLE!r}]
print("DELTA_PROGRESS", nonce, '{{"done_bins": 1, "total_bins": 2}}')
if "without-report" not in sys.argv[0]:
    seen = {{"argv": sys.argv[1:], "options": os.environ.get({STORAGE_OPTIONS_VARIABLE!r}),
            "run_key": os.environ.get({RUN_KEY_VARIABLE!r}),
            "nonce": os.environ.pop({OUTPUT_NONCE_VARIABLE!r}), "environment": dict(os.environ),
            "spark_local_ip": os.environ.get("SPARK_LOCAL_IP"),
            "bundled": os.path.exists(sys.argv[sys.argv.index("--py-files") + 1])}}
    print("DELTA_REPORT", nonce, json.dumps({{"contract_version": 1, "operation": "optimize", "table": "/t",
                                        "status": "failed", "error": {{"kind": "refused"}}, "plan": seen}}))
sys.exit(2)
"""


@pytest.fixture
def spark_submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("JAVA_HOME", java_home(tmp_path / "java"))
    return program(tmp_path / "spark-submit")


def program(path: Path) -> str:
    path.write_text(PLAYED_SPARK_SUBMIT)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def connect(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", **fields}))


def run(binary: str | None = None, told: list[JobProgress] | None = None, **arguments: Any) -> JobReport:
    settings: dict[str, Any] = {"spark_conf": {}, "storage_options": {}, "spark_binary": binary, **arguments}
    runner = SparkSubmitRunner("spark_default", log=logging.getLogger("job"), **settings)
    return runner.run(SPEC, (told if told is not None else []).append, "5e" * 32)


def seen(report: JobReport) -> Mapping[str, Any]:
    """What the played spark-submit found in its arguments and environment."""
    assert report.plan is not None
    return report.plan


def test_an_absent_connection_is_refused_and_not_taken_for_yarn(
    monkeypatch: pytest.MonkeyPatch, spark_submit: str
) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_SPARK_DEFAULT", raising=False)
    with pytest.raises(JobCannotStart, match=r"no Airflow connection 'spark_default'.*not known which Spark"):
        run(spark_submit)


@pytest.mark.parametrize(
    "fields",
    [{"conn_type": "http", "host": "example.org"}, {"host": ""}, {"host": "localhost"}, {"host": "local[*"}],
)
def test_a_master_that_no_spark_knows_is_refused(
    monkeypatch: pytest.MonkeyPatch, spark_submit: str, fields: dict[str, str]
) -> None:
    connect(monkeypatch, **fields)
    with pytest.raises(JobCannotStart, match="which no Spark knows"):
        run(spark_submit)


@pytest.mark.parametrize(
    ("fields", "conf"),
    [
        ({"host": "yarn", "extra": {"deploy-mode": "cluster"}}, {}),
        ({"host": "yarn"}, {"spark.submit.deployMode": "cluster"}),
    ],
)
def test_the_cluster_deploy_mode_is_refused(
    monkeypatch: pytest.MonkeyPatch, spark_submit: str, fields: dict[str, Any], conf: dict[str, str]
) -> None:
    connect(monkeypatch, **fields)
    with pytest.raises(JobCannotStart, match=r"deploy mode 'cluster'.*credentials of delta_conn_id"):
        run(spark_submit, spark_conf=conf, storage_options={"secret": "hidden"})


def test_the_operator_s_deploy_mode_wins_over_the_connection_s(
    monkeypatch: pytest.MonkeyPatch, spark_submit: str
) -> None:
    connect(monkeypatch, host="local[*]", extra={"deploy-mode": "cluster"})
    argv = seen(run(spark_submit, deploy_mode="client"))["argv"]
    assert argv[argv.index("--deploy-mode") + 1] == "client"


def test_a_connection_with_a_forbidden_binary_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, host="local[*]", extra={"spark-binary": "rm"})
    with pytest.raises(JobCannotStart, match="cannot be used"):
        run()


def test_a_missing_spark_submit_is_told_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, host="local[*]")
    with pytest.raises(
        JobCannotStart, match=r"'/no/spark-submit' is not on .*airflow-provider-delta\[spark\]"
    ):
        run("/no/spark-submit")


@pytest.mark.parametrize(
    ("environment", "message"),
    [({"JAVA_HOME": "/no/java"}, "JAVA_HOME is /no/java"), ({"PATH": "/no/path"}, "no Java on this worker")],
)
def test_a_missing_java_is_told_with_its_remedy(environment: dict[str, str], message: str) -> None:
    with pytest.raises(JobCannotStart, match=message):
        spark_settings.require_java(environment)


def test_java_is_left_to_a_spark_that_sets_its_own(tmp_path: Path) -> None:
    (tmp_path / "spark-env.sh").touch()
    spark_settings.require_java({"JAVA_HOME": "/no/java", "SPARK_CONF_DIR": str(tmp_path)})


def test_the_report_counts_and_not_the_exit_code(monkeypatch: pytest.MonkeyPatch, spark_submit: str) -> None:
    connect(monkeypatch, host="local[*]")
    told: list[JobProgress] = []
    report = run(spark_submit, told)
    assert (report.status, report.error) == ("failed", ErrorReport(kind="refused"))
    assert told == [JobProgress(1, 2)]
    assert seen(report)["bundled"] is True


def test_credentials_are_in_the_drivers_environment_and_nowhere_else(
    monkeypatch: pytest.MonkeyPatch, spark_submit: str, capsys: pytest.CaptureFixture[str]
) -> None:
    # On YARN and Kubernetes the hook's own env_vars would become arguments.
    connect(monkeypatch, host="yarn")
    report = run(spark_submit, storage_options={"secret": "hidden"})
    assert seen(report)["options"] == '{"secret": "hidden"}'
    assert seen(report)["run_key"] == "5e" * 32
    told = capsys.readouterr().out
    for secret in ("hidden", "5e" * 32):
        assert secret not in json.dumps(seen(report)["argv"])
        assert secret not in told


def test_the_nonce_is_in_the_drivers_environment_and_nowhere_else(
    monkeypatch: pytest.MonkeyPatch,
    spark_submit: str,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv(OUTPUT_NONCE_VARIABLE, "of the worker")
    connect(monkeypatch, host="yarn")
    with caplog.at_level("DEBUG"):
        told = seen(run(spark_submit))
    assert len(told["nonce"]) == 32
    assert told["nonce"] not in json.dumps([told["argv"], told["environment"]])
    assert told["nonce"] not in capsys.readouterr().out + caplog.text


def test_what_spark_logs_is_shown_without_controls_and_whatever_its_bytes(
    monkeypatch: pytest.MonkeyPatch, spark_submit: str, caplog: pytest.LogCaptureFixture
) -> None:
    connect(monkeypatch, host="yarn")
    with caplog.at_level("DEBUG", logger="job"):
        run(spark_submit)
    assert "no UTF-8: \ufffd \\x1b]0;title\\x07" in caplog.messages


def test_an_embedded_spark_starts_lean_and_listens_on_the_loopback_address(
    monkeypatch: pytest.MonkeyPatch, spark_submit: str
) -> None:
    connect(monkeypatch, host="local[2]")
    metrics = seen(run(spark_submit, spark_conf={"spark.ui.enabled": "true", "spark.x": 1}))
    argv = metrics["argv"]
    assert argv[argv.index("--master") + 1] == "local[2]"
    assert "spark.driver.bindAddress=127.0.0.1" in argv
    assert f"spark.pyspark.python={sys.executable}" in argv
    assert "spark.ui.enabled=true" in argv, "the user's properties win"
    assert "spark.x=1" in argv
    assert metrics["spark_local_ip"] == "127.0.0.1"


def test_a_cluster_keeps_its_own_settings(monkeypatch: pytest.MonkeyPatch, spark_submit: str) -> None:
    connect(monkeypatch, host="spark://host", port=7077)
    argv = seen(run(spark_submit))["argv"]
    assert argv[argv.index("--master") + 1] == "spark://host:7077"
    assert not any("extraJavaOptions" in argument or "spark.pyspark.python=" in argument for argument in argv)


@pytest.mark.usefixtures("spark_submit")
def test_a_spark_that_ends_without_a_report_is_lost_and_its_output_shown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    connect(monkeypatch, host="local[*]")
    with pytest.raises(JobLost, match=r"exit code 2 and without a report.*may have committed") as caught:
        run(program(tmp_path / "spark-submit-without-report"))
    assert "no UTF-8" in str(caught.value)
    assert "of no interest" not in str(caught.value)


@pytest.mark.usefixtures("spark_submit")
def test_a_spark_that_is_stopped_while_it_starts_is_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class StoppedAtStart(SparkSubmitRunner):
        def _prepared_hook(self, *arguments: Any) -> LineSortingHook:
            self.stop()
            return super()._prepared_hook(*arguments)

    connect(monkeypatch, host="local[*]")
    sleeping = tmp_path / "spark-submit-sleeping"
    sleeping.write_text(f"#!{sys.executable}\nimport time; time.sleep(60)\n")
    sleeping.chmod(0o755)
    log = logging.getLogger("job")
    runner = StoppedAtStart(
        "spark_default", spark_conf={}, storage_options={}, spark_binary=str(sleeping), log=log
    )
    with pytest.raises(JobLost, match="ended by SIG"):
        runner.run(SPEC, lambda _: None)


@pytest.mark.parametrize("conf", [{}, {"spark.log.level": "INFO"}])
def test_sparks_own_log_is_shown_to_those_who_ask_for_it(
    monkeypatch: pytest.MonkeyPatch, spark_submit: str, caplog: pytest.LogCaptureFixture, conf: dict[str, str]
) -> None:
    connect(monkeypatch, host="yarn")
    with caplog.at_level("INFO", logger="job"):
        run(spark_submit, spark_conf=conf)
    assert any("of no interest" in message for message in caplog.messages) is bool(conf)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (
            'Exception in thread "main" org.apache.spark.SparkException: Executor memory must be a positive number',
            "Executor memory must be a positive number. Correct the Spark connection",
        ),
        (
            (
                "Exception in thread \"main\" org.apache.spark.SparkException: When running with master 'yarn' either "
                "HADOOP_CONF_DIR or YARN_CONF_DIR must be set in the environment."
            ),
            "YARN_CONF_DIR must be set in the environment. Correct",
        ),
        (
            'Exception in thread "main" java.io.IOException: Cannot run program "/no/python": error=2, No such file or directory',
            'Cannot run program "/no/python". Set spark.pyspark.driver.python',
        ),
        ('Exception in thread "main" java.lang.OutOfMemoryError: Java heap space', None),
        ('Exception in thread "main" java.lang.RuntimeException: [download failed: a#b;1.0!b.jar]', None),
    ],
)
def test_what_sparks_launcher_refuses_is_final_and_what_may_pass_is_not(line: str, says: str | None) -> None:
    refusal = spark_settings.launcher_refusal(("WARNING: of the JVM", line))
    assert (refusal is None) == (says is None)
    assert says is None or says in str(refusal)


@pytest.mark.usefixtures("spark_submit")
def test_a_setting_that_sparks_launcher_refuses_cannot_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    connect(monkeypatch, host="local[*]")
    path = tmp_path / "spark-submit"
    path.write_text(
        "#!/bin/sh\necho 'Exception in thread \"main\" org.apache.spark.SparkException: no such thing'\nexit 1\n"
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    with pytest.raises(JobCannotStart, match="Spark cannot start the job: no such thing"):
        run(str(path))


@pytest.mark.parametrize(
    ("exit_code", "told"),
    [
        (137, ("The Spark driver", -9)),
        (143, ("The Spark driver", -15)),
        (-9, ("spark-submit", -9)),
        (1, ("spark-submit", 1)),
    ],
)
def test_an_exit_code_names_the_process_that_ended(exit_code: int, told: tuple[str, int]) -> None:
    assert spark_settings.ended_process(exit_code) == told


def test_pips_spark_submit_is_told_where_its_spark_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    beside_python = str(Path(sys.executable).parent / "spark-submit")
    environment = spark_settings.launcher_environment(beside_python, "local[*]")
    assert Path(environment["SPARK_HOME"], "bin", "spark-submit").exists()
    assert str(Path(sys.executable).parent) in environment["PATH"].split(os.pathsep)
    assert "SPARK_HOME" not in spark_settings.launcher_environment("/opt/spark/bin/spark-submit", "local[*]")
