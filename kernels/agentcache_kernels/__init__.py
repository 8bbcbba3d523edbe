"""Attention over paged keys and values, and the writes and copies that fill the pages.

Every call runs on whatever device its tensors are on.  The torch code here is the CPU path and the reference.
"""

from agentcache_kernels.attention import paged_attention
from agentcache_kernels.batch import AttentionBatch, make_attention_batch
from agentcache_kernels.pages import PageWrites, copy_pages, write_kv

__all__ = ["AttentionBatch", "PageWrites", "copy_pages", "make_attention_batch", "paged_attention", "write_kv"]
