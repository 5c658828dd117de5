"""``aiokafka.admin``."""

from aioprod.compat.aiokafka.admin.client import AIOKafkaAdminClient
from aioprod.compat.aiokafka.admin.new_partitions import NewPartitions
from aioprod.compat.aiokafka.admin.new_topic import NewTopic
from aioprod.compat.aiokafka.admin.records_to_delete import RecordsToDelete

__all__ = ["AIOKafkaAdminClient", "NewPartitions", "NewTopic", "RecordsToDelete"]
