"""The whole platform in virtual time: the real services in one process and one thread (README.md)."""
