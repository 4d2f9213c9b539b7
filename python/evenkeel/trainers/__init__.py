"""Trainers whose ranks make equal numbers of micro-steps, of unequal sizes. equal_steps.py knows no library; the other modules fit it to one each."""
