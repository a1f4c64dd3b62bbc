"""Checks of a Spark: whether it answers, gives an executor, and has on each machine what the jobs need."""

from __future__ import annotations

from delta_maintenance.doctor.check import OK, WARNING, Check, Examination, failed
from delta_maintenance.engine.spark.cluster_check import ClusterVersions
from delta_maintenance.engine.spark.examination import SparkFacts, examine_session
from delta_maintenance.errors import ClusterIncomplete
from delta_maintenance.process.requirements import REQUIRED
from delta_maintenance.progress import ProgressReporter

_ANSWER, _MACHINES, _ENCRYPTION = "spark.answer", "spark.machines", "spark.encryption"


def examine_spark(
    examination: Examination,
    master: str | None,
    sends_credentials: bool,
    progress: ProgressReporter,
) -> None:
    """
    :param master: master of the session, as for a job; ``None``: what Spark's own configuration says.
    :param sends_credentials: ``True``: jobs send storage options to executors.
    """
    facts = SparkFacts()
    try:
        examine_session(master, facts, progress)
    except ClusterIncomplete as error:
        examination.add(_answered(facts), failed(_MACHINES, error))
    except Exception as error:  # noqa: BLE001 - any error is what the check has found
        if facts.version is None:
            examination.add(failed(_ANSWER, error))
            examination.skip([_MACHINES, _ENCRYPTION], "Spark does not answer")
            return
        examination.add(_answered(facts), failed(_MACHINES, error))
    else:
        assert facts.machines is not None
        examination.add(_answered(facts), _machines(facts.machines))
    examination.add(_encryption(facts, sends_credentials))


def _answered(facts: SparkFacts) -> Check:
    found = {"version": facts.version, "master": facts.master, "application_id": facts.application_id}
    return Check(_ANSWER, OK, f"Spark {facts.version} at {facts.master}", facts=found)


def _machines(machines: ClusterVersions) -> Check:
    facts = {name: dict(versions) for name, versions in machines.found.items()}
    driver = machines.found["driver"]
    other = {
        f"{name} ({versions[name]} on {where}, {driver[name]} on the driver)"
        for where, versions in machines.found.items()
        for name in (*REQUIRED, "python")
        if versions[name].split(".")[:2] != driver[name].split(".")[:2]
    }
    if other:
        return Check(
            _MACHINES,
            WARNING,
            f"The machines have different versions: {'; '.join(sorted(other))}.",
            "Give driver and executors one Python environment.",
            facts,
        )
    brings = "" if machines.has_library else "; jobs bring this package with them"
    return Check(_MACHINES, OK, f"{machines.describe()}{brings}", facts=facts)


def _encryption(facts: SparkFacts, sends_credentials: bool) -> Check:
    """Tell how secrets that a job sends to executors travel."""
    if facts.is_local:
        return Check(_ENCRYPTION, OK, "executors are on this machine")
    if not sends_credentials:
        return Check(
            _ENCRYPTION, OK, "no credentials are sent to executors: they use the identity of their machines"
        )
    if facts.is_encrypted:
        return Check(_ENCRYPTION, OK, "storage options travel to executors encrypted")
    return Check(
        _ENCRYPTION,
        WARNING,
        "Storage options, with the credentials in them, travel to executors in the clear.",
        "Set spark.authenticate and spark.network.crypto.enabled (or spark.ssl.rpc.enabled), with Spark Connect use TLS, or give the cluster's machines an identity and "
        "set executor_credentials to ambient.",
        {"spark.network.crypto.enabled": False},
    )
