"""What a model writes, read as it comes: reasoning, text, and tool calls in the wire format of its family."""
