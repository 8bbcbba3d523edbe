"""What the cache holds, published as it changes, in the event format of vLLM (docs/kv-events.md)."""
