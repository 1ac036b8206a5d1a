"""What the console knows and shows, with no I/O: the read model, rights, pages, and what is withheld."""
