"""The state of live objects: what is saved, which rank saves it, and how it is restored."""
