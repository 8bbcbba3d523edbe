"""Triton kernels for GPUs, each in a file with its twin in plain torch, which is what it must equal.

A function that is named after a kernel describes one launch (:class:`~agentcache_kernels.gpu.launch.Launch`) without making
it; ``run()`` makes it.  Importing this package imports triton; nothing else of ``agentcache_kernels`` does.
"""

from agentcache_kernels.gpu.attention import AttentionRules, StepAttention
from agentcache_kernels.gpu.inputs import AttentionInputs, Sequences, SequenceSpec, sequences_on
from agentcache_kernels.gpu.launch import Launch
from agentcache_kernels.gpu.page_copy import PagePool, copy_waves, page_copy
from agentcache_kernels.gpu.rms_norm import rms_norm
from agentcache_kernels.gpu.rotary_write import RotaryInputs, rotary_write
from agentcache_kernels.gpu.sampling import Draws, sample_tokens
from agentcache_kernels.gpu.silu_mul import silu_mul
from agentcache_kernels.gpu.upload import on_device

__all__ = [
    "AttentionInputs",
    "AttentionRules",
    "Draws",
    "Launch",
    "PagePool",
    "RotaryInputs",
    "SequenceSpec",
    "Sequences",
    "StepAttention",
    "copy_waves",
    "on_device",
    "page_copy",
    "rms_norm",
    "rotary_write",
    "sample_tokens",
    "sequences_on",
    "silu_mul",
]
