"""Why a job waits: reasons that people can act on, counted over nodes."""
