#!/usr/bin/env python3
"""Writes names/MODEL.txt, the state dict of torchvision's and timm's models as "name [sizes]" lines, and prints for
every model its parameters, tensors and the FNV-1a hash of those lines. ConvNeXt's names are turned into timm's.

Usage: make_names.py (needs torchvision, and timm for ViTs)"""
import pathlib

import timm
import torchvision

KEPT = ("resnet18", "resnet50", "convnext_tiny", "vit_tiny")
MODELS = ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152",
          "convnext_tiny", "convnext_small", "convnext_base", "convnext_large")

VITS = {name: f"{name}_patch16_224" for name in ("vit_tiny", "vit_small", "vit_base")}
VITS["vit_base_clip"] = "vit_base_patch16_clip_224"


def timm_name(name):
    parts = name.split(".")
    if parts[0] == "classifier":
        return {"0": "head.norm", "2": "head.fc"}[parts[1]] + "." + parts[2]
    if parts[1] == "0":
        return f"stem.{parts[2]}.{parts[3]}"
    index = int(parts[1])
    if index % 2 == 0:
        return f"stages.{index // 2}.downsample.{parts[2]}.{parts[3]}"
    block = f"stages.{(index - 1) // 2}.blocks.{parts[2]}."
    if parts[3] == "layer_scale":
        return block + "gamma"
    return block + {"0": "conv_dw", "2": "norm", "3": "mlp.fc1", "5": "mlp.fc2"}[parts[4]] + "." + parts[5]


def fnv1a(text):
    value = 14695981039346656037
    for byte in text.encode():
        value = ((value ^ byte) * 1099511628211) % 2**64
    return value


for model in (*MODELS, *VITS):
    net = timm.create_model(VITS[model]) if model in VITS else getattr(torchvision.models, model)()
    lines = []
    for name, x in net.state_dict().items():
        sizes = list(x.shape)
        if model.startswith("convnext"):
            name = timm_name(name)
            sizes = sizes[:1] if name.endswith("gamma") else sizes
        lines.append(f"{name} {sizes}\n")
    text = "".join(lines)
    if model in KEPT:
        (pathlib.Path(__file__).parent / "names" / f"{model}.txt").write_text(text)
    count = sum(p.numel() for p in net.parameters())
    print(f'{{"{model}", {count}, {len(lines)}, 0x{fnv1a(text):016x}}},')
