"""OpenAI's two older endpoints: chat completions and completions."""
