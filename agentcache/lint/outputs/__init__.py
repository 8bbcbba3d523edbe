"""How findings are written: for people, for programs, for the systems that run checks."""
