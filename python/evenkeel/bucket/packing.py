"""Samples laid end to end, for attention of variable length."""

import torch


def packed(samples):
    """A collate_fn: the tensors of samples that are dictionaries, joined along their first dimension in a batch of one, with position_ids, which begin anew with
    each sample, cu_seq_lens (where each begins, and the end) and max_length, as FlashAttention and Hugging Face's models take them. The first label of
    a sample is masked: no sample predicts another's beginning."""
    lengths = torch.tensor([len(s["input_ids"]) for s in samples])
    out = {k: torch.cat([torch.as_tensor(s[k]) for s in samples])[None] for k in samples[0] if k != "attention_mask"}
    ends = torch.cat([torch.zeros(1, dtype=torch.int32), lengths.cumsum(0, dtype=torch.int32)])
    if "labels" in out:
        out["labels"][0, ends[:-1].long()] = -100
    out["position_ids"] = torch.cat([torch.arange(n) for n in lengths])[None]
    out["cu_seq_lens_q"] = out["cu_seq_lens_k"] = ends
    out["max_length_q"] = out["max_length_k"] = int(lengths.max())
    return out
