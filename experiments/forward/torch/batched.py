"""The small transformer with many adapters at once: one pass gives the losses of C candidates, as a population needs them. Adapters of rank 8 on
query and value, as evenkeel.forward.lora(model, ("query", "value")) lays them out in a row."""

import math

import torch
import torch.nn.functional as F

from small import HEADS, LAYERS, LETTERS, TOKENS, WIDTH

RANK, SCALE = 8, 2.0


class Batched:
    def __init__(self, state):
        self._s = state
        self._mask = torch.full((TOKENS + 1, TOKENS + 1), -1e9).triu(1)

    def _logits(self, theta, x):
        """theta [C, weights], x [C, B, tokens]; gives [C, B, classes] at the question."""
        (c, b, t), s = x.shape, self._s
        ab = theta.reshape(c, LAYERS, 2, 2, RANK * WIDTH)
        h = (F.embedding(x, s["embed.weight"]) + s["place"][:t]).reshape(c, b * t, WIDTH)
        for l in range(LAYERS):

            def linear(name, v):
                return F.linear(v, s[f"blocks.{l}.{name}.weight"], s[f"blocks.{l}.{name}.bias"])

            def adapted(name, v):
                a, bb = ab[:, l, 0 if name == "query" else 1].unbind(1)
                low = torch.bmm(v, a.reshape(c, RANK, WIDTH).transpose(1, 2))
                return linear(name, v) + SCALE * torch.bmm(low, bb.reshape(c, WIDTH, RANK).transpose(1, 2))

            def norm(name, v):
                return F.layer_norm(v, (WIDTH,), s[f"blocks.{l}.{name}.weight"], s[f"blocks.{l}.{name}.bias"])

            n = nq = norm("norm1", h)
            if l == LAYERS - 1:  # only the question is read
                h, nq = (v.reshape(c, b, t, WIDTH)[:, :, -1] for v in (h, n))
            q, k, v = (f.reshape(c * b, -1, HEADS, WIDTH // HEADS) for f in (adapted("query", nq), linear("key", n), adapted("value", n)))
            w = q.transpose(1, 2) @ k.permute(0, 2, 3, 1) / math.sqrt(WIDTH // HEADS)
            if l < LAYERS - 1:
                w = w + self._mask[:t, :t]
            h = h + linear("out", (w.softmax(-1) @ v.transpose(1, 2)).transpose(1, 2).reshape(c, -1, WIDTH))
            h = h + linear("down", F.gelu(linear("up", norm("norm2", h))))
        h = F.layer_norm(h, (WIDTH,), s["norm.weight"], s["norm.bias"])
        return h.reshape(c, b, WIDTH) @ s["head.weight"][LETTERS].t()

    def losses(self, theta, x, y):
        """The mean losses of C candidates, each on its own batch: x [C, B, tokens], y [C, B]."""
        z = self._logits(theta, x)
        return F.cross_entropy(z.flatten(0, 1), y.flatten(), reduction="none").reshape(y.shape).mean(1)

    def test(self, theta, x, y):
        """Accuracy and mean loss of one candidate."""
        z = self._logits(theta[None], x[None])[0]
        return (z.argmax(-1) == y).float().mean().item(), F.cross_entropy(z, y).item()
