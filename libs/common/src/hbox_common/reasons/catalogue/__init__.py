"""The catalogue of reasons by subject: one file each."""
