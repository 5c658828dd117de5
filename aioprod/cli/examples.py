"""The examples that ``--help`` of each command shows. A test runs them in this order."""

from __future__ import annotations

from collections.abc import Mapping

EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "": (
        "aioprod broker",
        "aioprod topics list -b kafka-1:9092,kafka-2:9092",
        "aioprod consume orders --profile production",
    ),
    "broker": ("aioprod broker", "aioprod broker --nodes 3 --topic orders:6"),
    "demo": ("aioprod demo", "aioprod demo --bootstrap-servers localhost:9092 --flights 10000"),
    "pipeline": ("aioprod pipeline new orders-by-hour",),
    "pipeline new": ("aioprod pipeline new orders-by-day --in .",),
    "dlq": ("aioprod dlq list orders.dead", "aioprod dlq redrive orders.dead --dry-run"),
    "dlq list": (
        "aioprod dlq list orders.dead --error Timeout --since 2026-01-31T08:00:00Z",
        "aioprod dlq list orders.dead --json",
    ),
    "dlq show": ("aioprod dlq show orders.dead 0:0",),
    "dlq redrive": (
        "aioprod dlq redrive orders.dead --error Timeout --rate 100 --yes",
        "aioprod dlq redrive orders.dead --to-topic orders.repaired --dry-run",
    ),
    "dlq drop": (
        "aioprod dlq drop orders.dead --dry-run",
        "aioprod dlq drop orders.dead --original-topic orders --yes",
    ),
    "outbox": ("aioprod outbox ddl",),
    "outbox ddl": ("aioprod outbox ddl --dialect sqlite", "aioprod outbox ddl --from 1"),
    "outbox status": ("aioprod outbox status orders.db --json",),
    "outbox refused": ("aioprod outbox refused orders.db",),
    "outbox retry": ("aioprod outbox retry orders.db --all", "aioprod outbox retry orders.db 7"),
    "outbox discard": ("aioprod outbox discard orders.db 7 --dry-run",),
    "outbox relay": ("aioprod outbox relay orders.db --name orders --http 8080",),
    "spark": ("aioprod spark checkpoint checkpoints/orders",),
    "spark checkpoint": (
        "aioprod spark checkpoint checkpoints/orders --json",
        "aioprod spark checkpoint checkpoints/orders --starting-offsets",
    ),
    "topics": ("aioprod topics list", "aioprod topics create payments --partitions 6"),
    "topics list": ("aioprod topics list", "aioprod topics list --internal --json"),
    "topics create": (
        "aioprod topics create clicks --partitions 12 --set retention.ms=86400000",
        "aioprod topics create clicks payments --if-not-exists",
    ),
    "topics describe": (
        "aioprod topics describe orders",
        "aioprod topics describe orders --all-settings --json",
    ),
    "topics alter": (
        "aioprod topics alter orders --partitions 12 --dry-run",
        "aioprod topics alter orders --set retention.ms=3600000 --unset cleanup.policy --yes",
    ),
    "produce": (
        "echo 'two apples' | aioprod produce orders",
        "echo 'anna:two apples' | aioprod produce orders -K :",
        "echo 'two apples' | aioprod produce orders --key anna --header source=shell",
        """echo '{"key": "anna", "value": {"item": "apple"}}' | aioprod produce orders """
        "--format json",
        "aioprod produce orders --format json --skip-bad < orders.json",
    ),
    "consume": (
        "aioprod consume orders --exit",
        "aioprod consume orders --from -5 --exit",
        r"aioprod consume orders --count 1 --format '%p@%o %k: %v\n'",
        "aioprod consume orders --group billing --count 1",
    ),
    "groups": ("aioprod groups lag", "aioprod groups describe billing"),
    "groups list": ("aioprod groups list --state Empty --type classic",),
    "groups describe": (
        "aioprod groups describe billing",
        "aioprod groups describe billing --json",
    ),
    "groups lag": (
        "aioprod groups lag",
        "aioprod groups lag billing --topic orders --json",
        "aioprod groups lag --watch",
    ),
    "groups reset-offsets": (
        "aioprod groups reset-offsets billing --to-earliest --dry-run",
        "aioprod groups reset-offsets billing --topic orders:0,1 --to-latest --yes",
        "aioprod groups reset-offsets billing --to-datetime 2026-01-31T08:00:00Z --yes",
    ),
    "copy": (
        "aioprod copy orders --to-topic archive --once",
        "aioprod copy orders -b old:9092 --to-bootstrap-servers new:9092",
        "aioprod copy --matching 'shop-.*' --profile old --to-profile new",
    ),
    "top": ("aioprod top", "aioprod top --once --json --interval 0.1"),
    "cluster": ("aioprod cluster", "aioprod cluster --json"),
    "acls": ("aioprod acls list",),
    "acls add": (
        "aioprod acls add --topic orders --principal User:alice --operation read",
        "aioprod acls add --topic shop- --pattern prefixed --principal User:shop --operation write",
    ),
    "acls list": ("aioprod acls list --principal User:alice", "aioprod acls list --json"),
    "acls remove": (
        "aioprod acls remove --principal User:alice --dry-run",
        "aioprod acls remove --principal User:alice --operation read --yes",
    ),
    "users": ("aioprod users list",),
    "users add": (
        "aioprod users add alice",
        "aioprod users add alice --password-file alice.password",
    ),
    "users change": ("aioprod users change alice --password-file alice.password",),
    "users list": ("aioprod users list", "aioprod users list alice --json"),
    "users remove": (
        "aioprod users remove alice --dry-run",
        "aioprod users remove alice --mechanism SCRAM-SHA-512 --yes",
    ),
    "tokens": ("aioprod tokens list",),
    "tokens list": ("aioprod tokens list --owner User:alice",),
    "tokens create": (
        "(umask 077 && aioprod tokens create --renewer User:scheduler > token.properties)",
    ),
    "tokens renew": ("aioprod tokens renew TOKEN --period-ms 86400000",),
    "tokens expire": ("aioprod tokens expire TOKEN --yes",),
    "topics delete-records": (
        "aioprod topics delete-records orders --before 1 --partition 0 --dry-run",
        "aioprod topics delete-records orders --all --yes",
    ),
    "groups delete": (
        "aioprod groups delete billing --dry-run",
        "aioprod groups delete billing --yes",
    ),
    "topics delete": (
        "aioprod topics delete clicks --dry-run",
        "aioprod topics delete clicks payments --if-exists --yes",
    ),
    "completion": ("source <(aioprod completion bash)", "aioprod completion fish | source"),
}
