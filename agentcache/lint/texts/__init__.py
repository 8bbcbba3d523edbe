"""What rules about texts share: where two strings differ, what is filled in there, and whether it matters."""
