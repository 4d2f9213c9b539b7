"""Runs plans of `evenkeel plan` on PyTorch processes joined by gloo.

It supports 1F1B pipelines, replicas with unequal shares, tensor degrees, sharded optimizers and gradients, recomputation, and stages on
several machines. With small transformers it shows that a plan runs, that its gradients are those of an undivided model, and how long an
iteration takes compared with the prediction. `evenkeel plan run` does the same in Go with encrypted links, but without tensor degrees.
docs/guides/plan-run.md has the commands."""

from .layout import Layout, PlanError
