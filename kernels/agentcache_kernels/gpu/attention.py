"""One step's attention on a GPU: which rows go to which kernel, decided once a step and used by every layer.

::

    sequences with one row:      splits that several share  -> shared_prefix      \\
                                 the other splits           -> decode_attention    > merge
    sequences with more rows:    prefill_attention
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from agentcache_kernels.gpu.decode import Parts, decode_attention
from agentcache_kernels.gpu.inputs import AttentionInputs, Sequences, SequenceSpec, sequences_on
from agentcache_kernels.gpu.merge import merge
from agentcache_kernels.gpu.prefill import prefill_attention, prefill_blocks, prefill_tiles
from agentcache_kernels.gpu.shared_prefix import (
    SharedItems,
    SharedSplits,
    members_of_item,
    share_splits,
    shared_prefix_attention,
)

SPLIT = 256
"""Keys of a split.  Fixed: a choice by batch would make a row's bits depend on its company."""


@dataclass(frozen=True, slots=True)
class AttentionRules:
    """What decides which kernel a row goes to."""

    split: int = SPLIT
    least_spared: int = 0
    """Bytes of one layer's keys and values that must not be read twice for shared reading to be worth its launch."""
    one_kernel: bool = False
    """Single rows take the way of prompts too, and nothing is rounded together: a row has the same bits whether it was
    generated or read, and however its prompt was cut.  It costs the parallelism over keys and the shared reading."""

    def shared(self, inputs: AttentionInputs, specs: Sequence[SequenceSpec]) -> SharedSplits:
        """Which splits of single rows are read together: all that can be, or none."""
        if self.one_kernel:
            return SharedSplits.none(len(specs))
        found = share_splits(specs, inputs.page_size, self.split, members_of_item(inputs))
        key = 2 * inputs.kv_heads * inputs.head_dim * inputs.bits // 8
        return found if found.spared * self.split * key >= self.least_spared else SharedSplits.none(len(specs))


_DEFAULT = AttentionRules()


@dataclass(frozen=True, slots=True)
class StepAttention:
    """The device's view of one step, for layers whose inputs have the shapes it was made for."""

    prefill: Sequences
    tiles: Tensor
    decode: Sequences
    shared: SharedItems
    rules: AttentionRules

    @classmethod
    def plan(
        cls, inputs: AttentionInputs, specs: Sequence[SequenceSpec], rules: AttentionRules = _DEFAULT
    ) -> "StepAttention":
        """Sort a step's sequences; ``inputs`` are any layer's."""
        device = inputs.q.device
        alone = [] if rules.one_kernel else [spec for spec in specs if spec.query_len == 1]
        several = [spec for spec in specs if spec.query_len > (0 if rules.one_kernel else 1)]
        return cls(
            sequences_on(device, several, inputs.page_size),
            prefill_tiles(several, inputs.group, prefill_blocks(inputs), device),
            sequences_on(device, alone, inputs.page_size),
            rules.shared(inputs, alone).on(device),
            rules,
        )

    def attend(self, inputs: AttentionInputs) -> Tensor:
        """``[tokens, q_heads, head_dim]`` in the type of the queries; rows that see no key are 0."""
        out = torch.zeros_like(inputs.q, memory_format=torch.contiguous_format)
        prefill_attention(inputs, self.prefill, self.tiles, out, fused=not self.rules.one_kernel).run()
        if len(self.decode):
            parts = Parts.room(inputs, self.decode, self.rules.split)
            shared_prefix_attention(inputs, self.decode, self.shared, parts).run()
            decode_attention(inputs, self.decode, self.shared.first_splits, parts).run()
            merge(parts, self.decode, inputs.window, out).run()
        return out
