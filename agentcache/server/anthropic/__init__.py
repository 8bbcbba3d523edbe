"""Anthropic's Messages API on the same engine: bodies are translated into chat completions, replies into content blocks."""
