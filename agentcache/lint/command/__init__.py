"""``agentcache lint`` in parts: what is asked for, which files, one lint of them, what is left of it, how it is written."""
