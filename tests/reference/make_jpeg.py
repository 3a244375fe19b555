#!/usr/bin/env python3
"""Writes jpeg.safetensors: JPEG files of many kinds, and the pixels that Pillow reads from them. Also writes
jpeg_windows.safetensors: larger files, of which a test reads windows.

Usage: make_jpeg.py (needs Pillow, numpy and cjpeg of Debian's libjpeg-turbo-progs; the kept file is of Pillow 13.0.0)

Case "NAME" has the file's bytes in "NAME.file", the pixels in "NAME.color" (height, width, 3) and, but for CMYK, in
"NAME.grey" (height, width, 1): what libjpeg makes of it as grey, by Image.draft."""
import io
import json
import math
import pathlib
import struct
import subprocess

import numpy
from PIL import Image, __version__, features


def picture(height, width, channels):
    noise = numpy.random.Generator(numpy.random.PCG64(height * width)).integers(-30, 31, (height, width, channels))
    y, x = numpy.mgrid[0:height, 0:width]
    planes = [128 + 100 * numpy.sin(x / 3 + 2 * c) * numpy.cos(y / 4 - c) for c in range(channels)]
    return numpy.clip(numpy.stack(planes, axis=2) + noise, 0, 255).astype(numpy.uint8)


def saved(height, width, mode="RGB", **options):
    channels = {"L": 1, "RGB": 3, "CMYK": 4}[mode]
    pixels = picture(height, width, channels)
    image = Image.fromarray(pixels[:, :, 0] if channels == 1 else pixels, mode)
    out = io.BytesIO()
    image.save(out, "JPEG", **{"quality": 85, **options})
    return out.getvalue()


def sampled(height, width, *options):
    """By cjpeg, which takes any sampling factors."""
    image = io.BytesIO()
    Image.fromarray(picture(height, width, 3)).save(image, "PPM")
    return subprocess.run(["cjpeg", "-quality", "85", *options], input=image.getvalue(), check=True,
                          capture_output=True).stdout


def patched(data, before, after):
    assert data.count(before) == 1
    return data.replace(before, after)


def write(name, tensors, metadata):
    header = {"__metadata__": metadata}
    offset = 0
    for key, values in tensors.items():
        header[key] = {"dtype": "U8", "shape": list(values.shape), "data_offsets": [offset, offset + values.size]}
        offset += math.prod(values.shape)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path = pathlib.Path(__file__).with_name(name)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(v.tobytes() for v in tensors.values()))
    print(f"{path.name}: {len(tensors)} tensors, {path.stat().st_size} bytes, Pillow {__version__}, "
          f"libjpeg-turbo {features.version('libjpeg_turbo')}")


def write_windows():
    files = {sampling: sampled(67, 131, "-quality", "60", "-sample", sampling)
             for sampling in ("1x1", "2x1", "1x2", "2x2", "4x1", "4x2", "2x4")}
    files["restarts"] = sampled(67, 131, "-quality", "60", "-restart", "3B")
    files["progressive"] = sampled(67, 131, "-quality", "60", "-progressive")
    files["grey"] = saved(67, 131, "L", quality=60)
    write("jpeg_windows.safetensors", {name: numpy.frombuffer(data, dtype=numpy.uint8) for name, data in files.items()},
          {"cases": json.dumps(list(files))})


def main():
    write_windows()
    cmyk = saved(19, 23, "CMYK")
    files = {
        "4:4:4": saved(19, 23, subsampling=0), "4:2:2": saved(19, 23, subsampling=1), "4:2:0": saved(19, 23, subsampling=2),
        "4:2:0 of 40 x 48": saved(40, 48, subsampling=2), "4:2:0 of 1 x 1": saved(1, 1, subsampling=2),
        "4:2:0 of 2 x 65": saved(2, 65, subsampling=2), "4:2:2 of 33 x 3": saved(33, 3, subsampling=1),
        "coarse": saved(31, 40, quality=5), "fine": saved(31, 40, quality=100, subsampling=0),
        "progressive": saved(31, 33, progressive=True), "progressive 4:4:4": saved(17, 9, progressive=True, subsampling=0),
        "restarts": saved(31, 33, restart_marker_blocks=2), "rgb": saved(19, 23, keep_rgb=True, subsampling=0),
        "grey": saved(19, 23, "L"), "grey, progressive": saved(31, 33, "L", progressive=True),
        "4:4:0": sampled(33, 31, "-sample", "1x2"), "4:1:1": sampled(33, 31, "-sample", "4x1"),
        "4:1:0": sampled(33, 31, "-sample", "4x2"), "chroma wider": sampled(19, 23, "-sample", "1x1,2x1,2x1"),
        "chroma of two kinds": sampled(33, 31, "-sample", "2x2,2x1,1x2"),
        "cmyk": cmyk, "ycck": patched(cmyk, b"Adobe\0\x64\0\0\0\0\0", b"Adobe\0\x64\0\0\0\0\2"),
    }
    tensors = {}
    for name, data in files.items():
        image = Image.open(io.BytesIO(data))
        is_cmyk = image.mode == "CMYK"
        tensors[name + ".file"] = numpy.frombuffer(data, dtype=numpy.uint8)
        tensors[name + ".color"] = numpy.array(image.convert("RGB"))
        if not is_cmyk:
            image = Image.open(io.BytesIO(data))
            image.draft("L", image.size)
            tensors[name + ".grey"] = numpy.array(image.convert("L"))[:, :, None]
    write("jpeg.safetensors", tensors, {"cases": json.dumps(list(files)), "pillow": __version__,
                                        "libjpeg-turbo": features.version("libjpeg_turbo")})


if __name__ == "__main__":
    main()
