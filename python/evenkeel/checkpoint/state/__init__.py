"""The state of a job's live objects: what is saved of it, by whom, and how it is restored."""
