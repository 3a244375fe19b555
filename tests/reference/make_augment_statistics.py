#!/usr/bin/env python3
"""Writes augment_statistics.safetensors: how torchvision's and timm's augmentations are distributed.

Usage: make_augment_statistics.py (needs torch, torchvision, timm, Pillow and numpy; the kept file is of the versions in
its metadata)

"draws.NAME" has the quantiles of 10,000 draws of one number, at the levels (i + 0.5) / 200. "ops.POLICY" counts how often
each op came in 10,000 images, in the order of the metadata. "image" is a photograph-like picture of 64 x 64 pixels;
"difference.NAME" is the mean and the standard deviation of what an augmentation changes of it, the mean absolute
difference of an image in grey levels, over 2,000 draws."""
import json
import math
import pathlib
import random
import struct

import numpy
import PIL
import timm
import torch
import torchvision
from PIL import Image, ImageOps
from timm.data import auto_augment
from timm.data.mixup import Mixup
from timm.data.random_erasing import RandomErasing
from torchvision import transforms
from torchvision.transforms import autoaugment

DRAWS = 10_000
PICTURES = 2_000
LEVELS = 200
SIDE = 64


def quantiles(numbers):
    return numpy.quantile(numpy.asarray(numbers, dtype=numpy.float64), (numpy.arange(LEVELS) + 0.5) / LEVELS)


def picture():
    """Smooth shades with an edge and some noise."""
    rows, columns = numpy.mgrid[0:SIDE, 0:SIDE] / SIDE
    noise = numpy.random.default_rng(5).normal(0, 8, (SIDE, SIDE, 3))
    planes = [120 + 90 * numpy.sin(4 * rows + 2 * columns), 40 + 170 * columns, 200 - 150 * rows * columns]
    shades = numpy.stack(planes, axis=2) + noise
    shades[rows + columns > 1.2] -= 50
    return numpy.clip(shades, 0, 255).astype(numpy.uint8)


def resized_crops():
    image = Image.new("RGB", (500, 375))
    boxes = [transforms.RandomResizedCrop.get_params(image, (0.08, 1), (3 / 4, 4 / 3)) for _ in range(DRAWS)]
    return {
        "crop.area": [h * w / (375 * 500) for _, _, h, w in boxes],
        "crop.log_ratio": [math.log(w / h) for _, _, h, w in boxes],
        "crop.top": [top for top, _, _, _ in boxes],
        "crop.left": [left for _, left, _, _ in boxes],
    }


def erasings():
    erase = RandomErasing(probability=1, mode="const", device="cpu")
    areas, ratios, tops = [], [], []
    for _ in range(DRAWS):
        image = torch.ones(1, SIDE, SIDE)
        erased = (erase(image)[0] == 0).nonzero()
        if len(erased):
            top, left = erased.min(0).values.tolist()
            bottom, right = erased.max(0).values.tolist()
            height, width = bottom + 1 - top, right + 1 - left
            areas.append(height * width / SIDE**2)
            ratios.append(math.log(height / width))
            tops.append(top)
    return {"erasing.area": areas, "erasing.log_ratio": ratios, "erasing.top": tops}


def jitters():
    factors = [
        transforms.ColorJitter.get_params((0.6, 1.4), (0.7, 1.3), (0.8, 1.2), (-0.1, 0.1))[1:] for _ in range(DRAWS)
    ]
    return {f"jitter.{i}": [one[i] for one in factors] for i in range(4)}


def mixes():
    mixup = Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, prob=0.9, switch_prob=0.4, num_classes=10)
    params = [mixup._params_per_batch() for _ in range(DRAWS)]
    shares = []
    for share, use_cutmix in params:
        if use_cutmix:
            shares.append(timm.data.mixup.cutmix_bbox_and_lam((1, 3, SIDE, SIDE), share)[1])
    return {
        "mix.mixup": [float(share) for share, use_cutmix in params if not use_cutmix],
        "mix.cutmix": [float(share) for share in shares],
    }


def trivial_augment(image):
    """Names of ops, and their magnitudes as ours has them."""
    policy = autoaugment.TrivialAugmentWide(interpolation=transforms.InterpolationMode.BILINEAR, fill=[128, 128, 128])
    seen = []
    apply = autoaugment._apply_op

    def record(img, op_name, magnitude, interpolation, fill):
        adjusts = op_name in ("Brightness", "Color", "Contrast", "Sharpness")
        seen.append((op_name, 1 + magnitude if adjusts else magnitude))
        return img

    autoaugment._apply_op = record
    for _ in range(DRAWS):
        policy(image)
    autoaugment._apply_op = apply
    return policy, seen


def rand_augment(image):
    options = dict(img_mean=(128, 128, 128))
    text = "rand-m9-mstd0.5-inc1"
    policy = auto_augment.rand_augment_transform(text, dict(options))
    seen = []

    def recorded(name):
        def apply(img, *args, **kwargs):
            number = args[0] if args else 0
            short = name.replace("Increasing", "").replace("Rel", "")
            seen.append((short, number * SIDE if name.endswith("Rel") else number))
            return img

        return apply

    recording = auto_augment.rand_augment_transform(text, dict(options))
    for op in recording.ops:
        op.aug_fn = recorded(op.name)
    for _ in range(DRAWS):
        recording(image)
    return policy, seen


def posterize(image, bits, keep=ImageOps.posterize):
    """Pillow 12's: with no bit an image is black. Later ones refuse that, which timm may draw."""
    return keep(image, bits) if bits > 0 else Image.new(image.mode, image.size)


def difference(image, transform):
    before = numpy.asarray(image, dtype=numpy.float64)
    values = [numpy.abs(numpy.asarray(transform(image), dtype=numpy.float64) - before).mean() for _ in range(PICTURES)]
    return numpy.array([numpy.mean(values), numpy.std(values)])


def main():
    ImageOps.posterize = posterize
    random.seed(1)
    numpy.random.seed(2)
    torch.manual_seed(3)
    pixels = picture()
    image = Image.fromarray(pixels)
    draws = {**resized_crops(), **erasings(), **jitters(), **mixes()}
    ops = {}
    policies = {}
    for name, make in (("ta_wide", trivial_augment), ("rand", rand_augment)):
        policies[name], seen = make(image)
        ops[name] = seen
        for op in sorted({op for op, _ in seen}):
            numbers = [number for other, number in seen if other == op]
            if any(number != 0 for number in numbers):
                draws[f"{name}.{op}"] = numbers
    names = {policy: sorted({op for op, _ in seen}) for policy, seen in ops.items()}
    tensors = {"image": pixels}
    for name, numbers in draws.items():
        tensors[f"draws.{name}"] = quantiles(numbers)
    for policy, seen in ops.items():
        tensors[f"ops.{policy}"] = numpy.array([sum(op == name for op, _ in seen) for name in names[policy]], float)
    bicubic = transforms.InterpolationMode.BICUBIC
    changes = {
        "crop": transforms.RandomResizedCrop(SIDE, scale=(0.08, 1), interpolation=bicubic),
        "shift": transforms.RandomCrop(SIDE, padding=4),
        "hflip": transforms.RandomHorizontalFlip(0.5),
        "jitter": transforms.ColorJitter(0.4, 0.3, 0.2, 0.1),
        **policies,
    }
    for name, transform in changes.items():
        tensors[f"difference.{name}"] = difference(image, transform)
    versions = {module.__name__: module.__version__ for module in (PIL, timm, torch, torchvision)}
    metadata = {"ops": json.dumps(names, separators=(",", ":")), **versions}
    header = {"__metadata__": metadata}
    offset, parts = 0, []
    for name, tensor in tensors.items():
        data = tensor.tobytes()
        kind = "U8" if tensor.dtype == numpy.uint8 else "F64"
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
        parts.append(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path = pathlib.Path(__file__).with_name("augment_statistics.safetensors")
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))
    print(f"{path.name}: {len(tensors)} tensors, {path.stat().st_size} bytes")
    for name in sorted(tensors):
        if name.startswith(("difference", "ops")):
            print(name, tensors[name].tolist())


main()
