"""A transformer small enough to be pretrained in minutes, the texts it learns, and the task it is then shifted to."""

import glob
import math
import re
import subprocess

import torch
import torch.nn.functional as F

VOCAB, WIDTH, LAYERS, HEADS, TOKENS = 128, 64, 2, 4, 32  # ASCII; TOKENS of text, and one more that asks for the class
ASK, LETTERS = 1, torch.tensor([2, 3, 4, 5])  # bytes that no text has: the question, and the answers
CLASSES = ("code", "comments", "Newton", "documents")


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.query, self.key, self.value, self.out = (torch.nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        b, t, _ = x.shape
        n = self.norm1(x)
        q, k, v = (f(n).reshape(b, t, HEADS, -1).transpose(1, 2) for f in (self.query, self.key, self.value))
        s = q @ k.transpose(2, 3) / math.sqrt(WIDTH // HEADS) + torch.full((t, t), -1e9).triu(1)
        x = x + self.out((s.softmax(-1) @ v).transpose(1, 2).reshape(b, t, WIDTH))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Transformer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.place = torch.nn.Embedding(VOCAB, WIDTH), torch.nn.Parameter(0.02 * torch.randn(TOKENS + 1, WIDTH))
        self.blocks = torch.nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = torch.nn.LayerNorm(WIDTH), torch.nn.Linear(WIDTH, VOCAB, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens) + self.place[: tokens.shape[1]]
        for b in self.blocks:
            x = b(x)
        return self.head(self.norm(x))


def _bytes(text):
    return torch.tensor([b for b in re.sub(r"[ \t]+", " ", text).encode("ascii", "ignore") if b >= 9])


def texts():
    """Four texts that every Go has: code and comments of its standard library, Newton's Opticks (it carries them for its tests), and its
    documents."""
    root = subprocess.run(["go", "env", "GOROOT"], check=True, capture_output=True, text=True).stdout.strip()

    def read(pattern):
        out = []
        for path in sorted(glob.glob(pattern)):
            if not path.endswith("_test.go"):
                with open(path, encoding="utf-8") as f:
                    out.append(f.read())
        return "\n".join(out)

    go = "".join(read(f"{root}/src/{d}/*.go") for d in ("net/http", "go/types", "encoding/json", "strings"))
    comments = " ".join(re.findall(r"^\s*// (.*)$", go, re.M))
    code = re.sub(r"^\s*//.*$\n?", "", go, flags=re.M)
    documents = re.sub(r"<[^>]*>", "", read(f"{root}/doc/*.html"))
    return [_bytes(t) for t in (code, comments, read(f"{root}/src/testdata/Isaac.Newton-Opticks.txt"), documents)]


def halves(stream):
    """What training may read, and what only the test reads."""
    cut = int(0.8 * len(stream))
    return stream[:cut], stream[cut:]


def shifted(stream):
    """The same text without its spaces."""
    return stream[stream != 32]


def pieces(streams, n, seed):
    """n pieces of text with the question behind them, and their classes."""
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(len(streams), (n,), generator=g)
    at = (torch.rand(n, generator=g) * torch.tensor([len(s) - TOKENS for s in streams])[y]).long()
    x = torch.stack([streams[c][i : i + TOKENS] for c, i in zip(y.tolist(), at.tolist())])
    return torch.cat([x, torch.full((n, 1), ASK)], 1), y
