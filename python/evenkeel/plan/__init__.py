"""Runs plans of `evenkeel plan` on processes of PyTorch joined by gloo: pipeline stages by 1F1B, replicas with any shares, tensor degrees,
sharding of optimizer and gradients, recomputation, and stages over several machines. It shows for small transformers that a plan runs, that
its gradients are those of an undivided model, and how long an iteration takes beside the prediction. evenkeel plan run does the same in Go
with encrypted links; tensor degrees run here because they need sums between processes inside every layer, which gloo has.
docs/guides/plan-run.md has the commands."""

from .layout import Layout, PlanError
