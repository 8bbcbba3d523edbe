"""Anthropic's Messages API: content blocks as chat messages."""
