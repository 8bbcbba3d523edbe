"""Conversations that the server keeps as exact token ids, so that what was generated is never tokenised again."""
