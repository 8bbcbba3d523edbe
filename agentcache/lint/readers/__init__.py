"""Files in, records out: each request of a file in the one shape that rules see, whatever wrote it."""

from agentcache.lint.readers.jsonl import read_records

__all__ = ["read_records"]
