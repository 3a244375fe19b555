#!/usr/bin/env python3
"""Writes augment.safetensors: what Pillow makes of small images.

Usage: make_augment.py (needs Pillow and numpy; the kept file is of Pillow 13.0.0)

The images "color" (19 x 23 x 3), "grey" (19 x 23 x 1), "square" (16 x 16 x 3) and "narrow" (2 x 5 x 3) are smooth
shapes with noise. The result of case 12 is named "12"; the cases are a JSON list in the metadata under "cases", each
with the image's name, the op's name in Norma, its numbers, and for geometry the interpolation and the fill."""
import json
import math
import pathlib
import struct

import numpy
from PIL import Image, ImageEnhance, ImageOps, __version__

INTERPOLATIONS = {"nearest": Image.Resampling.NEAREST, "bilinear": Image.Resampling.BILINEAR,
                  "bicubic": Image.Resampling.BICUBIC}


def picture(height, width, channels, seed):
    noise = numpy.random.Generator(numpy.random.PCG64(seed)).integers(-40, 41, (height, width, channels))
    y, x = numpy.mgrid[0:height, 0:width]
    planes = [128 + 90 * numpy.sin(x / 3 + c) * numpy.cos(y / 4 - c) + 20 * c for c in range(channels)]
    return numpy.clip(numpy.stack(planes, axis=2) + noise, 9, 247).astype(numpy.uint8)


def adjust_hue(image, factor):
    """As torchvision's on PIL images."""
    if image.mode == "L":
        return image
    h, s, v = image.convert("HSV").split()
    turned = numpy.array(h, dtype=numpy.uint8)
    turned += numpy.int32(factor * 255).astype(numpy.uint8)
    return Image.merge("HSV", (Image.fromarray(turned), s, v)).convert("RGB")


def solarize_add(image, add, threshold):
    """As timm's."""
    table = [min(255, i + add) if i < threshold else i for i in range(256)]
    return image.point(table * len(image.getbands()))


COLOR = {
    "invert": lambda image: ImageOps.invert(image),
    "posterize": lambda image, bits: ImageOps.posterize(image, int(bits)),
    "solarize": lambda image, threshold: ImageOps.solarize(image, threshold),
    "solarize_add": lambda image, add, threshold: solarize_add(image, int(add), int(threshold)),
    "autocontrast": lambda image: ImageOps.autocontrast(image),
    "equalize": lambda image: ImageOps.equalize(image),
    "adjust_brightness": lambda image, factor: ImageEnhance.Brightness(image).enhance(factor),
    "adjust_contrast": lambda image, factor: ImageEnhance.Contrast(image).enhance(factor),
    "adjust_saturation": lambda image, factor: ImageEnhance.Color(image).enhance(factor),
    "adjust_sharpness": lambda image, factor: ImageEnhance.Sharpness(image).enhance(factor),
    "adjust_hue": adjust_hue,
    "to_grey": lambda image: image.convert("L"),
    "hflip": lambda image: image.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
    "vflip": lambda image: image.transpose(Image.Transpose.FLIP_TOP_BOTTOM),
}


def geometry(image, op, numbers, interpolation, fill):
    fill = tuple(fill) if image.mode == "RGB" else fill[0]
    resample = INTERPOLATIONS[interpolation]
    if op == "rotate":
        return image.rotate(numbers[0], resample, fillcolor=fill)
    matrix = {"affine": lambda *m: m, "shear_x": lambda f: (1, f, 0, 0, 1, 0), "shear_y": lambda f: (1, 0, 0, f, 1, 0),
              "translate_x": lambda p: (1, 0, p, 0, 1, 0), "translate_y": lambda p: (1, 0, 0, 0, 1, p)}[op](*numbers)
    return image.transform(image.size, Image.Transform.AFFINE, matrix, resample, fillcolor=fill)


def cases():
    for name in ("color", "grey", "narrow"):
        for op in ("invert", "autocontrast", "equalize", "to_grey", "hflip", "vflip"):
            yield {"image": name, "op": op, "numbers": []}
        for bits in (1, 2, 5, 8):
            yield {"image": name, "op": "posterize", "numbers": [bits]}
        for threshold in (0, 76.5, 128, 256):
            yield {"image": name, "op": "solarize", "numbers": [threshold]}
        yield {"image": name, "op": "solarize_add", "numbers": [110, 128]}
        for op in ("brightness", "contrast", "saturation", "sharpness"):
            for factor in (0, 0.1, 0.73, 1, 1.9, 3.3):
                yield {"image": name, "op": f"adjust_{op}", "numbers": [factor]}
        for factor in (-0.5, -0.21, 0, 0.1, 0.5):
            yield {"image": name, "op": "adjust_hue", "numbers": [factor]}
    # More than 255 pixels in one value: what equalize counts with.
    for name in ("flat", "two"):
        for op in ("equalize", "autocontrast"):
            yield {"image": name, "op": op, "numbers": []}
    moves = [("rotate", [d]) for d in (0, 12.5, -30, 90, 135, 180, 270, 359.9, 720)]
    moves += [(f"shear_{axis}", [f]) for axis in "xy" for f in (0.3, -0.17, math.tan(math.radians(0.99)))]
    moves += [(f"translate_{axis}", [p]) for axis in "xy" for p in (3, -7.45, 40)]
    moves += [("affine", [0.7, 0, 2.5, 0, 1.3, -4]), ("affine", [0.9, 0.2, -1.3, -0.4, 1.1, 5.25]),
              ("affine", [70000.5, 0.25, -3, 0.25, 1, 0])]
    for name in ("color", "grey", "square", "narrow"):
        for i, (op, numbers) in enumerate(moves):
            for interpolation in INTERPOLATIONS:
                fill = [0, 0, 0] if i % 2 else [124, 116, 104]
                yield {"image": name, "op": op, "numbers": numbers, "interpolation": interpolation, "fill": fill}


def main():
    images = {"color": picture(19, 23, 3, 1), "grey": picture(19, 23, 1, 2), "square": picture(16, 16, 3, 3),
              "narrow": picture(2, 5, 3, 4), "flat": numpy.full((20, 20, 3), 77, numpy.uint8),
              "two": (numpy.indices((24, 24, 1)).sum(axis=0) // 9 * 50 + 20).astype(numpy.uint8)}
    tensors, listed = dict(images), []
    for number, case in enumerate(cases()):
        pixels = images[case["image"]]
        image = Image.fromarray(pixels if pixels.shape[2] == 3 else pixels[:, :, 0])
        if "interpolation" in case:
            result = geometry(image, case["op"], case["numbers"], case["interpolation"], case["fill"])
        else:
            result = COLOR[case["op"]](image, *case["numbers"])
        result = numpy.asarray(result)
        tensors[str(number)] = result.reshape(*result.shape[:2], -1)
        listed.append(case)
    header = {"__metadata__": {"cases": json.dumps(listed, separators=(",", ":")), "pillow": __version__}}
    offset, parts = 0, []
    for name, tensor in tensors.items():
        data = tensor.tobytes()
        header[name] = {"dtype": "U8", "shape": list(tensor.shape), "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
        parts.append(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path = pathlib.Path(__file__).with_name("augment.safetensors")
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))
    print(f"{path.name}: {len(listed)} cases, {path.stat().st_size} bytes, Pillow {__version__}")


main()
