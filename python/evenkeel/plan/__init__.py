"""Runs plans of `evenkeel plan` on processes of PyTorch joined by gloo: pipeline stages by 1F1B, replicas with any shares, tensor degrees,
sharding of optimizer and gradients, recomputation, and stages that span machines. For small transformers; it shows that a plan runs, that its
gradients are those of an undivided model, and what an iteration takes beside the prediction. docs/guides/plan-run.md has the commands."""

from .layout import Layout, PlanError
