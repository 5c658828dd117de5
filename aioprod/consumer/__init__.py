"""Reading records: offsets and single partitions, without a group."""

from aioprod.consumer.partition_reader import FetchedRecords, FetchSettings, PartitionReader, list_offsets

__all__ = ["FetchSettings", "FetchedRecords", "PartitionReader", "list_offsets"]
