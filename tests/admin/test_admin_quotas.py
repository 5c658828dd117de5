"""The admin client's calls for quotas, with an embedded and a real broker."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aioprod import Admin, BrokerError, ConfigError, ErrorCode
from aioprod.admin import ClientQuotaEntity, QuotaMatch
from tests.waiting import until

NewName = Callable[[str], str]


async def test_quotas_are_altered_described_and_removed(admin: Admin, new_name: NewName) -> None:
    client = ClientQuotaEntity(client_id=new_name("batch"))
    both = ClientQuotaEntity(user=new_name("anna"), client_id=client.client_id)
    others = ClientQuotaEntity(user=both.user, client_id=QuotaMatch.DEFAULT)
    limits = {
        client: {"producer_byte_rate": 1000.0, "consumer_byte_rate": 2000.0},
        both: {"request_percentage": 50.0},
        others: {"request_percentage": 60.0},
    }
    (await admin.alter_client_quotas(limits)).check()

    async def are(
        entity: ClientQuotaEntity,
        expected: dict[ClientQuotaEntity, dict[str, float]],
        strict: bool = False,
    ) -> None:
        async def so() -> bool:
            return await admin.describe_client_quotas(entity, strict=strict) == expected

        await until(so)

    await are(client, {client: limits[client], both: limits[both]})
    await are(client, {client: limits[client]}, strict=True)
    await are(others, {others: limits[others]})
    await are(
        ClientQuotaEntity(user=both.user, client_id=QuotaMatch.ANY),
        {both: limits[both], others: limits[others]},
    )
    assert limits.items() <= (await admin.describe_client_quotas()).items()
    (
        await admin.alter_client_quotas(
            {client: {"producer_byte_rate": None}, both: {"request_percentage": 70}}
        )
    ).check()
    await are(client, {client: {"consumer_byte_rate": 2000.0}, both: {"request_percentage": 70.0}})
    (
        await admin.alter_client_quotas({client: {"consumer_byte_rate": None}}, validate_only=True)
    ).check()
    await are(client, {client: {"consumer_byte_rate": 2000.0}, both: {"request_percentage": 70.0}})


async def test_an_invalid_quota_is_named(admin: Admin, new_name: NewName) -> None:
    good, bad = (
        ClientQuotaEntity(client_id=new_name("good")),
        ClientQuotaEntity(client_id=new_name("bad")),
    )
    altered = await admin.alter_client_quotas(
        {good: {"producer_byte_rate": 1}, bad: {"no_such_rate": 1}}
    )
    assert list(altered.successes) == [good]
    with pytest.raises(BrokerError, match=f"limits of client_id={bad.client_id}") as raised:
        altered.check()
    assert raised.value.code is ErrorCode.INVALID_REQUEST
    with pytest.raises(ConfigError, match=r"can't be set for QuotaMatch\.ANY"):
        await admin.alter_client_quotas(
            {ClientQuotaEntity(user=QuotaMatch.ANY): {"producer_byte_rate": 1}}
        )
