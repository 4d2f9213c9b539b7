"""The state of a job's live objects, underneath evenkeel.job."""
