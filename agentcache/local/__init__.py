"""The SDK's clients in one process with the engine."""
