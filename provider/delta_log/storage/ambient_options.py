"""What of a table's storage options another machine needs that has an identity of its own.

Each option is one of three things: a setting, which says where the store is and how to talk to it; a part of an identity, which
stays; or unknown. An unknown option is refused, since it may be secret, and leaving it out may change what is written.

Standard library only: the process that submits a job uses this module, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from delta_log.errors import InvalidRequest
from delta_log.storage.schemes import AZURE, GCS, S3, opened_kind, scheme_of


class AmbientOptions(Struct, frozen=True):
    """Storage options without an identity.

    :param options: the settings.
    :param withheld: names of the options that were left out.
    """

    options: Mapping[str, Any]
    withheld: tuple[str, ...]


class _Known(Struct, frozen=True):
    """The options of one store, or the members of one option.

    :param settings: names of settings.
    :param identity: names of settings that state or prove the identity of the client.
    :param nested: settings that have members.
    :param added: settings with which the client looks for the identity of its machine.
    """

    settings: frozenset[str]
    identity: frozenset[str] = frozenset()
    nested: Mapping[str, _Known] | None = None
    added: Mapping[str, Any] | None = None


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_S3 = _Known(
    _names(
        "endpoint_url use_ssl requester_pays default_block_size default_fill_cache default_cache_type version_aware "
        "max_concurrency fixed_upload_size local_expiry_check"
    ),
    _names("anon key secret token username password profile assume_role vended managed_by"),
    {
        "client_kwargs": _Known(
            _names("region_name verify use_ssl endpoint_url"),
            _names("aws_access_key_id aws_secret_access_key aws_session_token"),
        ),
        # Proxies are not here, since their addresses may hold passwords.
        "config_kwargs": _Known(
            _names(
                "region_name signature_version user_agent user_agent_extra connect_timeout read_timeout parameter_validation "
                "max_pool_connections s3 retries tcp_keepalive inject_host_prefix use_dualstack_endpoint use_fips_endpoint "
                "defaults_mode disable_request_compression request_min_compression_size_bytes request_checksum_calculation "
                "response_checksum_validation"
            )
        ),
        "s3_additional_kwargs": _Known(
            _names(
                "ServerSideEncryption SSEKMSKeyId BucketKeyEnabled StorageClass RequestPayer ChecksumAlgorithm CacheControl "
                "ContentType Tagging"
            )
        ),
        "lock": _Known(
            _names("provider table table_path region endpoint_url conditional_put"),
            _names("key secret token profile"),
        ),
    },
)
_GCS = _Known(
    _names(
        "endpoint_url project access requests_timeout timeout requester_pays quota_project_id block_size cache_timeout check_connection "
        "consistency default_location listings_expiry_time max_paths secure_serialize skip_instance_cache use_listings_cache version_aware"
    ),
    _names("token impersonation_chain scopes vended managed_by"),
)
_AZURE = _Known(
    _names(
        "account_name account_host location_mode blocksize max_concurrency timeout connection_timeout read_timeout socket_timeout "
        "default_fill_cache default_cache_type version_aware assume_container_exists listings_expiry_time max_paths "
        "skip_instance_cache use_listings_cache"
    ),
    _names(
        "account_key connection_string credential sas_token tenant_id client_id client_secret anon managed_identity_client_id "
        "workload_identity_tenant_id additionally_allowed_tenants vended managed_by"
    ),
    added={"anon": False},
)
_BY_FAMILY = {S3.family: _S3, GCS.family: _GCS, AZURE.family: _AZURE}


def ambient_options(table_uri: str, storage_options: Mapping[str, Any]) -> AmbientOptions:
    """Take the identity out of the storage options of a table.

    :raises InvalidRequest: an option is neither known to be a setting nor to be part of an identity.
    """
    scheme = scheme_of(table_uri)
    if scheme in ("", "file"):
        return AmbientOptions({}, tuple(sorted(storage_options)))
    kind = opened_kind(scheme)
    known = _BY_FAMILY[kind.family] if kind is not None else _Known(_names("managed_by"))
    withheld: list[str] = []
    options = _settings(known, storage_options, "", withheld)
    if kind is not None and storage_options:
        options |= known.added or {}
    return AmbientOptions(options, tuple(withheld))


def without_identity(table_uri: str, storage_options: Mapping[str, Any]) -> dict[str, Any]:
    """Return all options of a table in an object store but those that are known to be part of an identity.

    They stay in this process, so that an unknown one is left for the store to refuse.
    """
    kind = opened_kind(scheme_of(table_uri))
    return dict(storage_options) if kind is None else _unnamed(_BY_FAMILY[kind.family], storage_options)


def _unnamed(known: _Known, given: Mapping[str, Any]) -> dict[str, Any]:
    nested = known.nested or {}
    return {
        name: _unnamed(nested[name], value) if name in nested and isinstance(value, Mapping) else value
        for name, value in given.items()
        if name not in known.identity
    }


def _settings(known: _Known, given: Mapping[str, Any], place: str, withheld: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in sorted(given.items()):
        nested = (known.nested or {}).get(name)
        if name in known.identity:
            withheld.append(f"{place}{name}")
        elif nested is not None and (value is None or isinstance(value, Mapping)):
            found[name] = None if value is None else _settings(nested, value, f"{name}.", withheld)
        elif name in known.settings and not _has_password(value):
            found[name] = value
        else:
            raise InvalidRequest(
                f"The storage option {place}{name} may be secret, so it does not travel to executors that use the identity of their "
                "own machines (executor_credentials 'ambient'), and without it they might not write as they should. Nothing was "
                "written. Set it in the environment of these machines and leave it out here, or use executor_credentials 'job'."
            )
    return found


def _has_password(value: Any) -> bool:
    try:
        return isinstance(value, str) and "://" in value and urlsplit(value).password is not None
    except ValueError:
        return True
