"""Names of settings that a client does not have, but others do: those of other libraries, and of
another kind of client. Each has a cure.
"""

from __future__ import annotations

from collections.abc import Collection, Container

from aioprod.foreign_text import nearest

# The names of librdkafka, kafka-python and aiokafka with underscores, and ours.
_RENAMED = {
    "servers": "bootstrap_servers",
    "brokers": "bootstrap_servers",
    "broker": "bootstrap_servers",
    "hosts": "bootstrap_servers",
    "host": "bootstrap_servers",
    "port": "bootstrap_servers",
    "username": "sasl_username",
    "password": "sasl_password",
    "ssl": "security_protocol",
    "group": "group_id",
    "metadata_broker_list": "bootstrap_servers",
    "sasl_mechanisms": "sasl_mechanism",
    "sasl_plain_username": "sasl_username",
    "sasl_plain_password": "sasl_password",
    "oauth_cb": "sasl_oauth_token_provider",
    "ssl_cafile": "ssl_truststore_location",
    "ssl_ca_location": "ssl_truststore_location",
    "ssl_certfile": "ssl_keystore_location",
    "ssl_certificate_location": "ssl_keystore_location",
    "ssl_keyfile": "ssl_keystore_location",
    "ssl_key_location": "ssl_keystore_location",
    "ssl_password": "ssl_key_password",
    "ssl_check_hostname": "ssl_endpoint_identification_algorithm",
    "socket_timeout_ms": "request_timeout_ms",
    "socket_send_buffer_bytes": "send_buffer_bytes",
    "socket_receive_buffer_bytes": "receive_buffer_bytes",
    "topic_metadata_refresh_interval_ms": "metadata_max_age_ms",
    "metric_reporters": "observers",
    # producers
    "request_required_acks": "acks",
    "max_batch_size": "batch_size",
    "compression_codec": "compression_type",
    "message_max_bytes": "max_request_size",
    "message_timeout_ms": "delivery_timeout_ms",
    "message_send_max_retries": "retries",
    "queue_buffering_max_ms": "linger_ms",
    "queue_buffering_max_kbytes": "buffer_memory",
    "max_in_flight": "max_in_flight_requests_per_connection",
    # consumers
    "fetch_wait_max_ms": "fetch_max_wait_ms",
    "fetch_message_max_bytes": "max_partition_fetch_bytes",
    "queued_max_messages_kbytes": "max_buffered_bytes",
    "default_offset_commit_callback": "interceptors",
}
# The limit of start(), by kind of client.
_LIMIT_OF_START = "set max_block_ms (Producer) or default_api_timeout_ms (Consumer, Admin)"
_TOPICS = (
    "topics are the positional arguments of Consumer, and an argument of the methods of others"
)
_NO_VERSION = "versions are negotiated for each connection; leave it out"
_NO_LOOP = "the running event loop is used; leave it out"
_TLS_CONTEXT = "configure an ssl.SSLContext, and set ssl_context"
_NO_PROXY = "proxies are not supported"
_METRICS = "metrics() returns the metrics at any time; leave it out"
_NO_CALLBACK = "calls raise the errors, and observers are notified"
_LIMIT_OF_WAIT = "pass timeout_ms to getone() or getmany()"
# What to do instead, for names without a counterpart.
_ABSENT = {
    "api_version": _NO_VERSION,
    "api_version_request": _NO_VERSION,
    "api_version_auto_timeout_ms": _NO_VERSION,
    "broker_version_fallback": _NO_VERSION,
    "bootstrap_timeout_ms": _LIMIT_OF_START,
    "default_api_timeout_ms": _LIMIT_OF_START,
    "loop": _NO_LOOP,
    "selector": _NO_LOOP,
    "topic": _TOPICS,
    "topics": _TOPICS,
    "kafka_client": "each client has its own connections; leave it out",
    "debug": "set the level of the logger 'aioprod'",
    "log_level": "set the level of the logger 'aioprod'",
    "logger": "set a handler of the logger 'aioprod'",
    "log_cb": "set a handler of the logger 'aioprod'",
    "error_cb": _NO_CALLBACK,
    "throttle_cb": _NO_CALLBACK,
    "on_delivery": "pass on_delivery to send()",
    "stats_cb": _METRICS,
    "statistics_interval_ms": _METRICS,
    "metrics_enabled": _METRICS,
    "metric_group_prefix": "metrics have Kafka's names; leave it out",
    "ssl_crlfile": _TLS_CONTEXT,
    "ssl_crl_location": _TLS_CONTEXT,
    "ssl_ciphers": _TLS_CONTEXT,
    "enable_ssl_certificate_verification": _TLS_CONTEXT,
    "ssl_ca_pem": _TLS_CONTEXT,
    "ssl_certificate_pem": _TLS_CONTEXT,
    "ssl_key_pem": _TLS_CONTEXT,
    "proxy_url": _NO_PROXY,
    "socks5_proxy": _NO_PROXY,
    "socket_options": "asyncio sets TCP_NODELAY; leave it out",
    "socket_nagle_disable": "asyncio sets TCP_NODELAY; leave it out",
    "socket_keepalive_enable": "connections_max_idle_ms closes idle connections; leave it out",
    "receive_message_max_bytes": "responses have at most 512 MiB; leave it out",
    "sasl_kerberos_name": "set sasl_kerberos_service_name and sasl_kerberos_domain_name",
    # producers
    "batch_num_messages": "batch_size limits the bytes of a batch",
    "queue_buffering_max_messages": "buffer_memory limits the bytes of all records",
    "sticky_partitioning_linger_ms": "a partition is used until its batch is full; leave it out",
    "allow_auto_create_topics": "the broker decides (auto.create.topics.enable)",
    # consumers
    "consumer_timeout_ms": _LIMIT_OF_WAIT,
    "rebalance_timeout_ms": "max_poll_interval_ms is also the limit of a rebalance",
    "enable_auto_offset_store": "commit the positions of processed records with commit()",
    "enable_partition_eof": "compare position() with end_offsets(), or call lag()",
    "enable_incremental_fetch_sessions": "always on (KIP-227); leave it out",
}
# Settings that only one kind of our clients has.
_OF_PRODUCERS = frozenset(
    (
        *("acks", "batch_size", "buffer_memory", "compression_gzip_level", "compression_level"),
        *("compression_lz4_level", "compression_type", "compression_zstd_level"),
        *("delivery_timeout_ms", "enable_idempotence", "key_serializer", "largest_batch_size"),
        *("linger_ms", "max_block_ms", "max_in_flight_requests_per_connection"),
        *("max_request_size", "partitioner", "partitioner_adaptive_partitioning_enable"),
        *("partitioner_availability_timeout_ms", "partitioner_ignore_keys", "retries"),
        *("topic_compression", "transaction_timeout_ms", "transactional_id", "value_serializer"),
    )
)
_OF_CONSUMERS = frozenset(
    (
        *("allow_auto_create_topics", "auto_commit_interval_ms", "auto_offset_reset"),
        *("check_crcs", "client_rack", "enable_auto_commit", "exclude_internal_topics"),
        *("fetch_max_bytes", "fetch_max_wait_ms", "fetch_min_bytes", "group_id"),
        *("group_instance_id", "group_protocol", "group_remote_assignor"),
        *("heartbeat_interval_ms", "isolation_level", "key_deserializer"),
        *("largest_partition_fetch_bytes", "max_buffered_bytes", "max_partition_fetch_bytes"),
        *("max_poll_interval_ms", "max_poll_records", "partition_assignment_strategy"),
        *("session_timeout_ms", "stall_timeout_ms", "value_deserializer"),
    )
)
_OF_REGISTRIES = ("schema_registry_", "basic_auth_", "bearer_auth_")
_OF_SERIALIZERS = frozenset(
    (
        *("auto_register_schemas", "use_latest_version", "latest_compatibility_strict"),
        *("key_subject_name_strategy", "value_subject_name_strategy", "specific_avro_reader"),
    )
)


def is_of_registry(given: str) -> bool:
    """Return whether a setting is one of Confluent's serializers or of their registry client."""
    name = given.replace(".", "_")
    return name.startswith(_OF_REGISTRIES) or name in _OF_SERIALIZERS


def renamed(given: str, known: Container[str]) -> str:
    """Return the Python name of a setting that has another name in another library, or "".

    Args:
        given: the name there, with dots or underscores.
        known: the Python names of the settings.
    """
    name = _RENAMED.get(given.replace(".", "_"), "")
    return name if name in known else ""


def reason_of_absence(given: str) -> str:
    """Return what to do instead of a setting that only another client has, or ""."""
    if is_of_registry(given):
        return (
            "it is for the schema registry: give it to aioprod.schema_registry.SchemaRegistry, or "
            "to a serializer"
        )
    name = given.replace(".", "_")
    if name in _ABSENT:
        return _ABSENT[name]
    for names, owner in ((_OF_PRODUCERS, "Producer"), (_OF_CONSUMERS, "Consumer")):
        if name in names:
            return f"it is a setting of {owner}"
    return ""


def cure_of(given: str, known: Collection[str]) -> str:
    """Return what to do about an unknown setting, for an error; "" if there is no suggestion.

    Args:
        given, known: see :func:`renamed`.
    """
    near, reason = renamed(given, known), reason_of_absence(given)
    if given.replace(".", "_") in known:
        near = given.replace(".", "_")
    elif not near and not reason:
        near = nearest(given, known)
    return f"did you mean {near!r}?" if near else reason
