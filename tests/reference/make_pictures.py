#!/usr/bin/env python3
"""Writes pictures.safetensors: image files of the kinds that people have, and the pixels that Pillow reads from them.

Usage: make_pictures.py (needs Pillow and numpy; the kept file is of Pillow 13.0.0)

Case "NAME" has the file's bytes in "NAME.file" and the pixels in "NAME.color" (height, width, 3): those of
Image.open(file).convert("RGB"), as torchvision loads them. Of 16-bit greys, which Pillow makes white above 255, they are
the upper 8 bits. Cases with an EXIF orientation also have "NAME.turned", by ImageOps.exif_transpose. JPEGs are in
make_jpeg.py, but for the turned one."""
import io
import json
import math
import pathlib
import struct

import numpy
from PIL import Image, ImageOps, __version__

from make_jpeg import picture


def saved(image, kind, **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def turned(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif.tobytes()


def main():
    color = Image.fromarray(picture(19, 23, 3))
    inks = Image.fromarray(picture(19, 23, 4), "CMYK")
    alpha = Image.fromarray(picture(19, 23, 4), "RGBA")
    grey = Image.fromarray(picture(19, 23, 1)[:, :, 0])
    bits = grey.convert("1")
    palette = color.quantize(13)
    deep = numpy.array(grey).astype(numpy.uint16) * 256 + numpy.arange(23, dtype=numpy.uint16)
    small = Image.fromarray(picture(2, 3, 3))
    other = Image.fromarray(255 - picture(19, 23, 3))
    tiff = {"plain": {}, "lzw": {"compression": "tiff_lzw"}, "deflate": {"compression": "tiff_adobe_deflate"},
            "packbits": {"compression": "packbits"}}
    files = {
        "png, palette": saved(palette, "PNG"), "png, palette and transparency": saved(palette, "PNG", transparency=3),
        "png, grey of 16 bits": saved(Image.fromarray(deep), "PNG"), "png, grey with alpha": saved(alpha.convert("LA"), "PNG"),
        "png, 1 bit": saved(bits, "PNG"), "png, rgba": saved(alpha, "PNG"), "png, 1 x 1": saved(color.crop((3, 4, 4, 5)), "PNG"),
        "png, 2 x 3000": saved(Image.fromarray(numpy.tile(picture(2, 30, 3), (1, 100, 1))), "PNG"),
        "bmp": saved(color, "BMP"),
        "webp": saved(color, "WEBP", quality=70), "webp, lossless": saved(color, "WEBP", lossless=True),
        "webp, alpha": saved(alpha, "WEBP", lossless=True, exact=True), "webp, lossy alpha": saved(alpha, "WEBP", quality=50),
        "webp, 1 x 1": saved(color.crop((3, 4, 4, 5)), "WEBP", lossless=True),
        "webp, moving": saved(color, "WEBP", save_all=True, append_images=[other], lossless=True, duration=100),
        "webp, turned": saved(color, "WEBP", lossless=True, exif=turned(6)),
        **{f"tiff, {name}": saved(color, "TIFF", **options) for name, options in tiff.items()},
        "tiff, rgba": saved(alpha, "TIFF"), "tiff, cmyk": saved(inks, "TIFF"), "tiff, grey": saved(grey, "TIFF"),
        "tiff, grey with alpha": saved(alpha.convert("LA"), "TIFF"), "tiff, palette": saved(palette, "TIFF"),
        "tiff, 1 bit": saved(bits, "TIFF"), "tiff, fax": saved(bits, "TIFF", compression="group4"),
        "tiff, grey of 16 bits": saved(Image.fromarray(deep), "TIFF"),
        "tiff, two pages": saved(color, "TIFF", save_all=True, append_images=[other]),
        **{f"tiff, turned {n}": saved(small, "TIFF", tiffinfo={0x0112: n}) for n in range(2, 9)},
        "gif": saved(palette, "GIF"), "gif, interlaced": saved(palette, "GIF", interlace=True),
        "gif, grey": saved(grey, "GIF"), "gif, transparency": saved(palette, "GIF", transparency=3),
        "gif, moving": saved(palette, "GIF", save_all=True, append_images=[other.quantize(7)], duration=100),
        "jpeg, turned": saved(color, "JPEG", quality=85, exif=turned(6)),
        **{f"png, turned {n}": saved(small, "PNG", exif=turned(n)) for n in range(2, 9)},
    }
    # The first frame covers a part of the screen: the rest is of the transparent color, and of color 0 without one.
    for name in ("gif", "gif, transparency"):
        part = bytearray(files[name])
        part[6:10] = struct.pack("<HH", 30, 25)
        begin = part.index(b"," + struct.pack("<HHHH", 0, 0, 23, 19))
        part[begin + 1:begin + 5] = struct.pack("<HH", 4, 5)
        files[name + ", a part"] = bytes(part)
    tensors = {}
    for name, data in files.items():
        tensors[name + ".file"] = numpy.frombuffer(data, dtype=numpy.uint8)
        image = Image.open(io.BytesIO(data))
        if "16 bits" in name:
            tensors[name + ".color"] = numpy.repeat((deep >> 8).astype(numpy.uint8)[:, :, None], 3, axis=2)
            continue
        tensors[name + ".color"] = numpy.array(image.convert("RGB"))
        if "turned" in name and not name.startswith("tiff"):
            tensors[name + ".turned"] = numpy.array(ImageOps.exif_transpose(image).convert("RGB"))
    header = {"__metadata__": {"cases": json.dumps(list(files)), "pillow": __version__}}
    offset = 0
    for name, values in tensors.items():
        header[name] = {"dtype": "U8", "shape": list(values.shape), "data_offsets": [offset, offset + values.size]}
        offset += math.prod(values.shape)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path = pathlib.Path(__file__).with_name("pictures.safetensors")
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(v.tobytes() for v in tensors.values()))
    print(f"{path.name}: {len(files)} cases, {path.stat().st_size} bytes, Pillow {__version__}")


if __name__ == "__main__":
    main()
