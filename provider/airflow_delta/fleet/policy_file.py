"""Reads the policy of a task when the task runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delta_log.errors import InvalidRequest

if TYPE_CHECKING:
    from delta_maintenance.fleet.policy.reading import WrittenPolicy


def policy_from(source: str | Mapping[str, Any], dag_file: str) -> WrittenPolicy:
    """
    :param source: path of a file, or the members of a policy.
    :param dag_file: path of the DAG file, beside which a relative path is looked for.
    :raises InvalidRequest: there is no such file, or it is not a policy.
    """
    # Imported here, since a DAG file imports this module.
    from delta_maintenance.fleet.policy.reading import policy_of, read_policy

    if not isinstance(source, str):
        return policy_of(source, "policy")
    path = Path(dag_file).parent / source
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InvalidRequest(
            f"{path} cannot be read as a policy: {reason}. Name a YAML file by its absolute path, or by its path from the DAG file."
        ) from None
    return read_policy(text, path.name)
