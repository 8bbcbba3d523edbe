"""Page events for routers of other projects, in vLLM's format, over ZeroMQ."""
