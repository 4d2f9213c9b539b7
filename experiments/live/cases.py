"""The cases of gradients.py: models, collators and losses as the libraries and their examples have them, with small sizes and random weights."""

import collections
import contextlib
import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import peft
import pytorch_metric_learning.losses as metric
import timm
import torch
import torch.nn.functional as F
import torch_geometric as pyg
import torchvision as tv
import transformers as hf
from tokenizers import Tokenizer, models
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_sequence
from torch.utils.data import default_collate

CASES: list["Case"] = []
hf.logging.set_verbosity_error()


def plain_step(optimizer, _):
    optimizer.step()
    optimizer.zero_grad()


@dataclasses.dataclass
class Case:
    """A job. sample(i, generator) makes a sample, which has its number i; loss(model, batch) is what one goes backward from, or backward does it all. weight:
    what the loss is a mean over, if not samples. refused: it has to be. warned: a warning is all that can be. limits: modes in which it may be refused."""

    library: str
    name: str
    net: Callable
    sample: Callable
    loss: Callable | None = None
    backward: Callable | None = None
    collate: Callable = default_collate
    weight: Callable | None = None
    reference: str = "union"
    check: bool = True
    cut: Callable | None = None
    refused: bool = False
    warned: bool = False
    limits: tuple = ()
    ddp: dict = dataclasses.field(default_factory=dict)
    batches: dict = dataclasses.field(default_factory=dict)
    step: Callable = plain_step

    def compute(self, model, batch):
        self.backward(model, batch) if self.backward else self.loss(model, batch).backward()


def case(library, name, net, sample, loss=None, **more):
    CASES.append(Case(library, name, net, sample, loss, **more))
    return CASES[-1]


def also(of, name, **changes):
    """A case that differs from another."""
    CASES.append(dataclasses.replace(of, name=f"{of.name}, {name}", **changes))
    return CASES[-1]


def noisy(c):
    return "dropout" in inspect.signature(c.net).parameters and not c.refused


def samples(c, length):
    before, made = torch.get_default_dtype(), []
    torch.set_default_dtype(torch.float64)
    for i in range(length):
        made.append(c.sample(i, torch.Generator().manual_seed(i)))
    torch.set_default_dtype(before)
    return made


def numbers(batch):
    i = batch["i"] if isinstance(batch, Mapping) else batch.i if hasattr(batch, "i") else batch[-1]
    return torch.as_tensor(i).tolist()


def counted(labels):
    return int((labels != -100).sum())


UNUSED = {"find_unused_parameters": True}

# Hugging Face transformers, and peft on top of it.

WORDS = ["<pad>", "<mask>", "<end>"] + [f"w{i}" for i in range(29)]
TOKENIZER = hf.PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="<end>")), pad_token="<pad>", mask_token="<mask>", eos_token="<end>")
TINY = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24, "vocab_size": 32, "max_position_embeddings": 32}


def own_loss(model, batch):
    return model(**{k: v for k, v in batch.items() if k != "i"}).loss


def words(i, g):
    return torch.randint(3, 32, (2 + i % 7,), generator=g).tolist()


def text(i, g):
    ids = words(i, g)
    return {"input_ids": ids, "attention_mask": [1] * len(ids), "i": i}


def labelled(i, g):
    """Some tokens have labels, and of two samples in five none has."""
    t = text(i, g)
    return {**t, "labels": [w if torch.rand((), generator=g) < 0.4 and i % 5 > 1 else -100 for w in t["input_ids"]]}


def pair(i, g):
    return {**text(i, g), "labels": [-100] * 3 if i % 5 < 2 else words(i + 3, g)}


def sentence(i, g):
    return {**text(i, g), "labels": i % 3}


def pixels(_, g, size=16):
    return torch.randn(3, size, size, generator=g)


def dropouts(dropout, *names):
    return dict.fromkeys(names, dropout)


def bert(kind):
    return lambda dropout=0.0: kind(hf.BertConfig(**TINY, num_labels=3, **dropouts(dropout, "hidden_dropout_prob", "attention_probs_dropout_prob")))


def gpt2(dropout=0.0):
    return hf.GPT2LMHeadModel(hf.GPT2Config(n_embd=16, n_layer=2, n_head=2, n_positions=32, vocab_size=32, **dropouts(dropout, "resid_pdrop", "embd_pdrop", "attn_pdrop")))


def lora(dropout=0.0):
    return peft.get_peft_model(gpt2(), peft.LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True, lora_dropout=dropout, init_lora_weights=False))


def checkpointed(net):
    net.gradient_checkpointing_enable()
    return net


def t5(dropout=0.0):
    return hf.T5ForConditionalGeneration(hf.T5Config(vocab_size=32, d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2, dropout_rate=dropout, decoder_start_token_id=0))


def vit(dropout=0.0):
    small = {k: TINY[k] for k in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")}
    return hf.ViTForImageClassification(hf.ViTConfig(**small, image_size=16, patch_size=8, num_labels=3, **dropouts(dropout, "hidden_dropout_prob", "attention_probs_dropout_prob")))


def whisper(dropout=0.0):
    sizes = {f"{part}_{what}": n for part in ("encoder", "decoder") for what, n in (("layers", 1), ("attention_heads", 2), ("ffn_dim", 24))}
    ids = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 2, "decoder_start_token_id": 2}
    return hf.WhisperForConditionalGeneration(hf.WhisperConfig(**sizes, **ids, vocab_size=32, d_model=16, num_mel_bins=8, max_source_positions=20, max_target_positions=32, dropout=dropout, suppress_tokens=[], begin_suppress_tokens=[]))


def speech(i, g):
    return {"input_features": torch.randn(8, 40, generator=g), "labels": torch.tensor(words(i, g)), "i": i}


def speech_collate(some):
    """As in transformers' guide of speech recognition: features are stacked, labels padded by -100."""
    return hf.BatchFeature({"input_features": torch.stack([s["input_features"] for s in some]), "labels": pad_sequence([s["labels"] for s in some], True, -100), "i": torch.tensor([s["i"] for s in some])})


def wav2vec2(reduction):
    sizes = {"conv_dim": (8, 8), "conv_stride": (5, 4), "conv_kernel": (10, 8), "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2}
    off = {"layerdrop": 0.0, "apply_spec_augment": False, **dropouts(0.0, "hidden_dropout", "attention_dropout", "feat_proj_dropout", "final_dropout", "activation_dropout")}
    return lambda: hf.Wav2Vec2ForCTC(hf.Wav2Vec2Config(**{k: v for k, v in TINY.items() if k != "max_position_embeddings"}, **sizes, **off, feat_extract_norm="layer", do_stable_layer_norm=True, ctc_loss_reduction=reduction, ctc_zero_infinity=True))


def waves(some):
    mask = pad_sequence([torch.ones(len(s["wave"]), dtype=torch.long) for s in some], True)
    return {"input_values": pad_sequence([s["wave"] for s in some], True), "attention_mask": mask, "labels": pad_sequence([s["labels"] for s in some], True, -100), "i": torch.tensor([s["i"] for s in some])}


def clip():
    return hf.CLIPModel(hf.CLIPConfig(text_config={**TINY, "eos_token_id": 2}, vision_config={**TINY, "image_size": 16, "patch_size": 8}, projection_dim=8))


def mixtral(aux):
    config = hf.MixtralConfig(**TINY, num_key_value_heads=2, num_local_experts=4, output_router_logits=aux, router_aux_loss_coef=0.1, experts_implementation="eager")
    return lambda: hf.MixtralForCausalLM(config)


def shifted(batch):
    """The tokens that a causal model's own loss counts."""
    return counted(batch["labels"][:, 1:])


LANGUAGE = hf.DataCollatorForLanguageModeling(TOKENIZER, mlm=False)
case("transformers", "GPT-2, DataCollatorForLanguageModeling", gpt2, text, own_loss, collate=LANGUAGE, weight=shifted)
case("transformers", "BERT, masked tokens, DataCollatorForTokenClassification", bert(hf.BertForMaskedLM), labelled, own_loss, collate=hf.DataCollatorForTokenClassification(TOKENIZER), weight=lambda b: counted(b["labels"]))
BERT = case("transformers", "BERT, classes, DataCollatorWithPadding", bert(hf.BertForSequenceClassification), sentence, own_loss, collate=hf.DataCollatorWithPadding(TOKENIZER), batches={"drop_last": True})
case("transformers", "T5, DataCollatorForSeq2Seq, ranks without labels", t5, pair, own_loss, collate=hf.DataCollatorForSeq2Seq(TOKENIZER), weight=lambda b: counted(b["labels"]))
case("transformers", "GPT-2, gradient checkpointing", lambda dropout=0.0: checkpointed(gpt2(dropout)), text, own_loss, collate=LANGUAGE, weight=shifted)
case("transformers", "ViT, DefaultDataCollator", vit, lambda i, g: {"pixel_values": pixels(i, g), "labels": i % 3, "i": i}, own_loss, collate=hf.DefaultDataCollator())
case("transformers", "Whisper, BatchFeature", whisper, speech, own_loss, collate=speech_collate, weight=lambda b: counted(b["labels"]))
CTC = case("transformers", "wav2vec2, CTC as a mean", wav2vec2("mean"), lambda i, g: {"wave": torch.randn(200 + 13 * (i % 7), generator=g), "labels": torch.tensor(words(i % 3, g)), "i": i}, own_loss, collate=waves, ddp=UNUSED)
also(CTC, "as the default sum", net=wav2vec2("sum"), refused=True)
CLIP = case("transformers", "CLIP, contrastive", clip, lambda i, g: {**text(i, g), "input_ids": [*words(i, g)[:-1], 2], "pixel_values": pixels(i, g).numpy(), "i": i}, lambda model, b: own_loss(model, {**b, "return_loss": True}), collate=hf.DataCollatorWithPadding(TOKENIZER), refused=True)
also(CLIP, "check=False", check=False, refused=False, reference="micro-steps")
case("transformers", "Mixtral, experts", mixtral(False), text, own_loss, collate=LANGUAGE, weight=shifted)
AUX = case("transformers", "Mixtral, balance of experts", mixtral(True), text, own_loss, collate=LANGUAGE, weight=shifted, refused=True)
also(AUX, "check=False", check=False, refused=False, reference="micro-steps")
case("peft", "LoRA of GPT-2", lora, text, own_loss, collate=LANGUAGE, weight=shifted)


# torchvision and timm.


class Detector(nn.Module):
    """A detector of torchvision on a backbone of one's own, as its tutorial builds them. Sampled anchors are drawn from the numbers of the images."""

    def __init__(self, kind, **own):
        super().__init__()
        body = nn.Sequential(nn.Conv2d(3, 8, 3, 4, 1), nn.ReLU(), nn.Conv2d(8, 8, 3, 2, 1), nn.ReLU())
        backbone = tv.models.detection.backbone_utils.BackboneWithFPN(nn.Sequential(collections.OrderedDict(a=body)), {"a": "0"}, [8], 8)
        anchors = tv.models.detection.anchor_utils.AnchorGenerator(((8,), (16,)), ((1.0,), (1.0,)))
        pool = lambda size: tv.ops.MultiScaleRoIAlign(["0"], size, 2)
        pools = {"box_roi_pool": pool(3), **({"mask_roi_pool": pool(4)} if kind is tv.models.detection.MaskRCNN else {})} if own else {}
        key = "rpn_anchor_generator" if own else "anchor_generator"
        self.inner = kind(backbone, 3, min_size=32, max_size=32, **{key: anchors}, **pools, **own)

    def forward(self, images, targets, seed):
        torch.manual_seed(seed)
        return self.inner(list(images), list(targets))


RCNN = {"rpn_pre_nms_top_n_train": 20, "rpn_post_nms_top_n_train": 10, "box_batch_size_per_image": 8}


def scene(i, g):
    count = 1 + i % 3
    corner = torch.rand(count, 2, generator=g) * 16
    masks = torch.zeros(count, 32, 32, dtype=torch.uint8)
    masks[:, 4:20, 4:20] = 1
    return pixels(i, g, 32), {"boxes": torch.cat([corner, corner + 6 + 8 * torch.rand(count, 2, generator=g)], 1), "labels": 1 + torch.arange(count) % 2, "masks": masks}, i


def cut_fields(batch, begin, end):
    return tuple(field[begin:end] for field in batch)


def zipped(some):
    return tuple(zip(*some))


def detection(model, batch):
    return sum(model(batch[0], batch[1], sum(batch[2])).values())


def picture(i, g):
    return pixels(i, g), i % 3, i


def large(i, g):
    """Leaves batch normalisation more than one number for each channel of a single sample."""
    return pixels(i, g, 40), i % 3, i


def classes(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1])


class Still(nn.Module):
    """A model whose batch normalisation stays as it is, as for fine-tuning; its dropout is off."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def train(self, mode=True):
        super().train(mode)
        for m in self.modules():
            if isinstance(m, (nn.BatchNorm2d, nn.Dropout)):
                m.eval()
        return self

    def forward(self, x):
        return self.inner(x)


def segmenter():
    body = tv.models._utils.IntermediateLayerGetter(shuffle(), {"stage4": "out", "stage3": "aux"})
    heads = tv.models.segmentation.fcn.FCNHead
    return Still(tv.models.segmentation.FCN(body, heads(32, 3), heads(32, 3))).train()


def shuffle():
    return tv.models.ShuffleNetV2([1, 1, 1], [8, 16, 32, 32, 16], num_classes=3)


def area(i, g):
    seen = torch.randint(0, 3, (16, 16), generator=g)
    seen[:, : i % 16] = 255
    return pixels(i, g), seen, i


def segmentation(model, batch):
    out = model(batch[0])
    return sum(share * F.cross_entropy(out[k], batch[1], ignore_index=255) for k, share in (("out", 1.0), ("aux", 0.5)))


def vits(dropout=0.0):
    return timm.create_model("vit_tiny_patch16_224", img_size=16, patch_size=8, embed_dim=16, depth=2, num_heads=2, num_classes=3, drop_rate=dropout, drop_path_rate=dropout)


RETINA = case("torchvision", "RetinaNet, tuple(zip(*batch))", lambda: Detector(tv.models.detection.RetinaNet), scene, detection, collate=zipped, cut=cut_fields)
also(RETINA, "not cut", cut=None, limits=("cut",))
FASTER = case("torchvision", "Faster R-CNN", lambda: Detector(tv.models.detection.FasterRCNN, **RCNN), scene, detection, collate=zipped, cut=cut_fields, refused=True)
also(FASTER, "check=False", check=False, refused=False, reference="micro-steps")
case("torchvision", "Mask R-CNN, check=False", lambda: Detector(tv.models.detection.MaskRCNN, **RCNN), scene, detection, collate=zipped, cut=cut_fields, check=False, reference="micro-steps", ddp=UNUSED)
case("torchvision", "FCN, dict of outputs, pixels without a label", segmenter, area, segmentation, weight=lambda b: int((b[1] != 255).sum()))
case("torchvision", "ShuffleNet, batch normalisation", shuffle, large, classes, reference="micro-steps")
case("torchvision", "ShuffleNet, SyncBatchNorm", lambda: nn.SyncBatchNorm.convert_sync_batchnorm(shuffle()), large, classes, reference="micro-steps", limits=("whole", "cut"))
case("timm", "ViT, dropped paths", vits, picture, classes)
case("timm", "ResNet, batch normalisation", lambda: timm.models.ResNet(timm.models.resnet.BasicBlock, (1, 1, 1, 1), num_classes=3, channels=(8, 8, 16, 16)), large, classes, reference="micro-steps")

# torch_geometric and pytorch_metric_learning.


class Graphs(nn.Module):
    def __init__(self, whole=True):
        super().__init__()
        self.a, self.b, self.whole = pyg.nn.GCNConv(4, 8), pyg.nn.GATConv(8, 3), whole

    def forward(self, data):
        x = self.b(self.a(data.x, data.edge_index).relu(), data.edge_index)
        return pyg.nn.global_mean_pool(x, data.batch) if self.whole else x


def graph(i, g):
    n = 3 + i % 4
    return pyg.data.Data(x=torch.randn(n, 4, generator=g), edge_index=torch.randint(0, n, (2, 8), generator=g), y=torch.tensor([i % 3]), at=torch.randint(0, 3, (n,), generator=g), i=torch.tensor([i]))


def some_graphs(batch, begin, end):
    return pyg.data.Batch.from_data_list(batch.to_data_list()[begin:end])


class Metric(nn.Module):
    """A loss with parameters of its own, within the model that DDP has."""

    def __init__(self, loss):
        super().__init__()
        self.trunk, self.loss = nn.Sequential(nn.Flatten(), nn.Linear(768, 8)), loss()

    def forward(self, x, y):
        return self.loss(self.trunk(x), y)


def returned(model, batch):
    return model(*batch[:2])


GRAPHS = case("torch_geometric", "graphs, Batch", Graphs, graph, lambda model, b: F.cross_entropy(model(b), b.y), collate=pyg.data.Batch.from_data_list, cut=some_graphs)
also(GRAPHS, "not cut", cut=None, limits=("cut",))
also(GRAPHS, "mean over nodes", net=lambda: Graphs(False), loss=lambda model, b: F.cross_entropy(model(b), b.at), weight=lambda b: b.num_nodes)
case("pytorch_metric_learning", "ArcFace", lambda: Metric(lambda: metric.ArcFaceLoss(3, 8)), picture, returned)
TRIPLET = case("pytorch_metric_learning", "triplets within the batch", lambda: Metric(metric.TripletMarginLoss), picture, returned, refused=True)
also(TRIPLET, "check=False", check=False, refused=False, reference="micro-steps")


# torch's own examples (pytorch/examples and tutorials), and losses that their readers write.


class WordModel(nn.Module):
    """word_language_model: time first, [time, batch]."""

    def __init__(self, kind, dropout=0.0):
        super().__init__()
        self.embed, self.kind, self.drop = nn.Embedding(32, 12), kind, nn.Dropout(dropout)
        self.body = nn.LSTM(12, 12, 2, dropout=dropout) if kind == "lstm" else nn.TransformerEncoder(nn.TransformerEncoderLayer(12, 2, 16, dropout), 1)
        self.out = nn.Linear(12, 32)

    def forward(self, ids):
        x = self.drop(self.embed(ids))
        if self.kind == "lstm":
            return self.out(self.drop(self.body(x)[0]))
        mask = nn.Transformer.generate_square_subsequent_mask(len(ids))
        return self.out(self.body(x, mask, is_causal=True))


def time_first(some):
    return pad_sequence([s[0] for s in some]), torch.tensor([s[1] for s in some])


def next_words(model, batch):
    return F.cross_entropy(model(batch[0][:-1]).flatten(0, 1), batch[0][1:].flatten(), ignore_index=0)


class Packed(nn.Module):
    """A classifier of sequences, packed in the model or in the loader."""

    def __init__(self):
        super().__init__()
        self.embed, self.body, self.out = nn.Embedding(32, 8), nn.GRU(8, 8, bidirectional=True), nn.Linear(16, 3)

    def forward(self, x, lengths=None):
        x = x if lengths is None else pack_padded_sequence(x, lengths, enforce_sorted=False)
        h = self.body(x._replace(data=self.embed(x.data)))[1]
        return self.out(torch.cat([h[0], h[1]], 1))


def sequence(i, g):
    return torch.tensor(words(i, g)), i


class Gan(nn.Module):
    """dcgan: two networks in one model, for one DistributedDataParallel."""

    def __init__(self, norm=True):
        super().__init__()
        self.g = nn.Sequential(nn.ConvTranspose2d(4, 8, 4), nn.BatchNorm2d(8), nn.ReLU(), nn.ConvTranspose2d(8, 3, 4, 4), nn.Tanh())
        self.d = nn.Sequential(nn.Conv2d(3, 8, 4, 4), *([nn.BatchNorm2d(8)] if norm else []), nn.LeakyReLU(0.2), nn.Conv2d(8, 1, 4), nn.Flatten(0))

    def forward(self, x=None, z=None):
        return self.d(x) if z is None else self.g(z)


def real_and_noise(i, g):
    return pixels(i, g), torch.randn(4, 1, 1, generator=g), i


def is_real(out, real):
    return F.binary_cross_entropy_with_logits(out, torch.full_like(out, float(real)))


def dcgan(model, batch):
    """Three backward passes, as in the example."""
    inner = getattr(model, "module", model)
    is_real(model(batch[0]), 1).backward()
    fake = model(z=batch[1])
    is_real(model(fake.detach()), 0).backward()
    inner.d.requires_grad_(False)
    is_real(model(fake), 1).backward()
    inner.d.requires_grad_(True)


def unsynchronised(backward):
    """Several backward passes of one micro-step: tuner.synchronised sends the sum."""

    def within(model, batch):
        with getattr(model, "no_sync", contextlib.nullcontext)():
            backward(model, batch)

    return within


def two_optimizers(_, plain):
    for part in (plain.g, plain.d):
        torch.optim.Adam(part.parameters(), lr=1e-4).step()
    plain.zero_grad()


def wgan_gp(model, batch):
    """The critic's loss: a penalty on gradients with respect to inputs."""
    real, fake = batch[0], model(z=batch[1])
    share = (batch[2] % 7 / 7).view(-1, 1, 1, 1)
    mixed = (share * real + (1 - share) * fake.detach()).requires_grad_()
    slope = torch.autograd.grad(model(mixed).sum(), mixed, create_graph=True)[0]
    return model(fake).mean() - model(real).mean() + 10 * (slope.flatten(1).norm(dim=1) - 1).square().mean()


class Vae(nn.Module):
    """vae, whose noise comes with the samples, or is drawn."""

    def __init__(self, own=True):
        super().__init__()
        self.into, self.out, self.own = nn.Linear(768, 8), nn.Linear(4, 768), own

    def forward(self, x, noise):
        mean, log = self.into(x.flatten(1)).chunk(2, 1)
        return self.out(mean + (0.5 * log).exp() * (noise.flatten(1) if self.own else torch.randn_like(mean))), mean, log


def elbo(model, batch):
    """The example's, which is a sum."""
    out, mean, log = model(batch[0], batch[1])
    return F.binary_cross_entropy_with_logits(out, batch[0].flatten(1).sigmoid(), reduction="sum") - 0.5 * (1 + log - mean.square() - log.exp()).sum()


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk, self.head = nn.Sequential(nn.Conv2d(3, 4, 4, 4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 8)), nn.Linear(16, 1)

    def forward(self, a, b):
        return self.head(torch.cat([self.trunk(a), self.trunk(b)], 1)).sigmoid().squeeze(1)


def rewarded(i, g):
    steps = 2 + i % 5
    return torch.randn(steps, 4, generator=g), torch.randint(0, 3, (steps,), generator=g), torch.randn(steps, generator=g).cumsum(0), i


def episodes(some):
    return *([s[k] for s in some] for k in range(3)), torch.tensor([s[3] for s in some])


def reinforce(normalised):
    def loss(model, batch):
        of = F.log_softmax(model(torch.cat(batch[0])), 1).gather(1, torch.cat(batch[1]).unsqueeze(1)).squeeze(1)
        gain = torch.cat(batch[2])
        return -(of * ((gain - gain.mean()) / (gain.std() + 1e-9) if normalised else gain)).sum() / len(batch[0])

    return loss


def mlp(into=4, out=3):
    return nn.Sequential(nn.Linear(into, 8), nn.Tanh(), nn.Linear(8, out))


def atoms(i, g):
    return torch.randn(5, 3, generator=g), torch.randn((), generator=g), torch.randn(5, 3, generator=g), i


def forces(model, batch):
    at = batch[0].requires_grad_()
    energy = model((at.unsqueeze(1) - at.unsqueeze(2)).square().sum(-1).flatten(1)).squeeze(1)
    return F.mse_loss(energy, batch[1]) + F.mse_loss(-torch.autograd.grad(energy.sum(), at, create_graph=True)[0], batch[2])


class Bag(nn.Module):
    """The tutorial of text classification: texts in one row, with offsets."""

    def __init__(self, sparse=False):
        super().__init__()
        self.embed, self.out = nn.EmbeddingBag(32, 8, sparse=sparse), nn.Linear(8, 3)

    def forward(self, ids, offsets):
        return self.out(self.embed(ids, offsets))


def offsets(some):
    return torch.cat([s[0] for s in some]), torch.tensor([0] + [len(s[0]) for s in some[:-1]]).cumsum(0), torch.tensor([s[1] for s in some])


def sam(model, batch):
    """The gradient at a step upwards, which needs the round's gradient before."""
    classes(model, batch).backward()
    inner = getattr(model, "module", model)
    with torch.no_grad():
        for p in inner.parameters():
            p.add_(0.05 * p.grad)
    classes(model, batch).backward()


def twice(model, batch):
    classes(model, batch).backward()
    model(batch[0]).square().mean().backward()


def retained(model, batch):
    out = model(batch[0])
    F.cross_entropy(out, batch[1]).backward(retain_graph=True)
    out.square().mean().backward()


def ema_step(optimizer, plain):
    plain_step(optimizer, plain)
    plain.__dict__.setdefault("mean", torch.optim.swa_utils.AveragedModel(plain, avg_fn=torch.optim.swa_utils.get_ema_avg_fn(0.9))).update_parameters(plain)



def by_hand(model, batch):
    return model(batch[0]).softmax(0)[:, 0].square().mean()


SMALL = case("torch", "EMA of the model", lambda: nn.Sequential(nn.Flatten(), mlp(768)), picture, classes, step=ema_step)
WORD = case("torch", "word_language_model, LSTM, time first", lambda dropout=0.0: WordModel("lstm", dropout), sequence, next_words, collate=time_first, weight=lambda b: int((b[0][1:] != 0).sum()), cut=lambda b, i, j: (b[0][:, i:j], b[1][i:j]))
also(WORD, "not cut", cut=None, limits=("cut",))
also(WORD, "Transformer", net=lambda dropout=0.0: WordModel("transformer", dropout))
case("torch", "sequences packed in the model", Packed, sequence, lambda m, b: F.cross_entropy(m(b[0], b[1]), b[2] % 3), collate=lambda some: (pad_sequence([s[0] for s in some]), torch.tensor([len(s[0]) for s in some]), torch.tensor([s[1] for s in some])), cut=lambda b, i, j: (b[0][:, i:j], b[1][i:j], b[2][i:j]))
case("torch", "sequences packed in the loader", Packed, sequence, lambda m, b: F.cross_entropy(m(b[0]), b[1] % 3), collate=lambda some: (pack_sequence([s[0] for s in some], False), torch.tensor([s[1] for s in some])), limits=("cut",))
TWICE = case("torch", "two forward and backward passes", SMALL.net, picture, backward=twice, limits=("whole", "cut"))
also(TWICE, "under no_sync", backward=unsynchronised(twice), limits=())
also(TWICE, "one forward pass", backward=retained, limits=("whole", "cut"))
case("torch", "dcgan, three backward passes", Gan, real_and_noise, backward=dcgan, reference="micro-steps", step=two_optimizers, limits=("whole", "cut"))
case("torch", "dcgan, under no_sync, two optimizers", Gan, real_and_noise, backward=unsynchronised(dcgan), reference="micro-steps", step=two_optimizers)
case("torch", "WGAN-GP, gradient penalty", lambda: Gan(False), real_and_noise, wgan_gp, reference="micro-steps")
VAE = case("torch", "vae, mean", Vae, real_and_noise, lambda m, b: elbo(m, b) / (768 * len(b[0])))
also(VAE, "its own sum", loss=elbo, refused=True)
also(VAE, "its own sum and noise", net=lambda: Vae(False), loss=elbo, refused=True, warned=True)
case("torch", "siamese_network", Siamese, lambda i, g: (pixels(i, g), pixels(i, g), float(i % 2), i), lambda m, b: F.binary_cross_entropy(m(b[0], b[1]), b[2]))
case("torch", "super_resolution", lambda: nn.Sequential(nn.Conv2d(3, 8, 3, 1, 1), nn.ReLU(), nn.Conv2d(8, 12, 3, 1, 1), nn.PixelShuffle(2)), lambda i, g: (pixels(i, g, 8), pixels(i, g), i), lambda m, b: F.mse_loss(m(b[0]), b[1]))
REINFORCE = case("torch", "reinforce", mlp, rewarded, reinforce(False), collate=episodes, cut=cut_fields)
also(REINFORCE, "returns normalised over the batch", loss=reinforce(True), refused=True)
case("torch", "potential, energies and forces", lambda: mlp(25, 1), atoms, forces)
BAG = case("torch", "EmbeddingBag, offsets", Bag, sequence, lambda m, b: F.cross_entropy(m(b[0], b[1]), b[2] % 3), collate=offsets, limits=("cut",))
case("torch", "SAM within a round", SMALL.net, picture, backward=sam, reference="micro-steps", limits=("whole", "cut"))

# Wrong on purpose: each has to be refused.

case("torch", "WRONG: a softmax over the batch", SMALL.net, picture, by_hand, refused=True)
also(BERT, "WRONG: a fixed divisor", loss=lambda m, b: F.cross_entropy(m(input_ids=b["input_ids"], attention_mask=b["attention_mask"]).logits, b["labels"], reduction="sum") / 20, refused=True)
also(GRAPHS, "WRONG: cut too short", cut=lambda b, i, j: some_graphs(b, i, max(i + 1, j - 1)), refused=True)
