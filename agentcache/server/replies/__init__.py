"""What a request wants of its reply, and how the reply is held to it and read."""
