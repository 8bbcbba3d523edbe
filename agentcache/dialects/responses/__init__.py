"""OpenAI's Responses API: input items as chat messages."""
