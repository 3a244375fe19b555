#!/usr/bin/env python3
"""Images per second of Norma's loader beside torchvision's DataLoader with Pillow, from JPEGs of 500 x 375 or other
sizes.

Both decode, cut out and resize (bicubic) to 224 x 224, flip, do rand-m9-mstd0.5-inc1, normalize, erase with probability
0.25 and mix the batch (mixup 0.8, CutMix 1): ConvNeXt's recipe. PyTorch's side is timm's create_transform, which calls
Pillow, on torchvision's ImageFolder. They take turns, with as many workers; prints each round and the median ratio.

    ./run build && python3 benchmarks/jpeg_loading.py      (needs torch, torchvision, timm, Pillow and numpy)
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
CLASSES = 8


def make_pictures(folder, count, width, height):
    """JPEGs as large as photographs are: shapes of all sizes and noise; those that are there are taken."""
    import numpy
    from PIL import Image

    for i in range(count):
        file = folder / "train" / f"class{i % CLASSES}" / f"{i:05}.jpg"
        if file.exists():
            continue
        file.parent.mkdir(parents=True, exist_ok=True)
        random = numpy.random.Generator(numpy.random.PCG64(i))
        picture = numpy.zeros((height, width, 3))
        for cells in (3, 8, 24, 70):
            coarse = random.uniform(0, 255, (cells * 3 // 4 + 1, cells, 3)).astype(numpy.uint8)
            smooth = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
            picture += numpy.asarray(smooth, dtype=float) / 4
        picture += random.normal(0, 15, picture.shape)
        Image.fromarray(picture.clip(0, 255).astype(numpy.uint8)).save(file, quality=90)


def run_torch(options):
    """One line of JSON as jpeg_loading.cpp prints it."""
    import timm.data
    import torch
    import torchvision
    from PIL import ImageOps

    # timm asks for 0 bits at times, which Pillow refuses since version 12: black, as before.
    posterize = ImageOps.posterize
    ImageOps.posterize = lambda image, bits: posterize(image, bits) if bits > 0 else image.point(lambda _: 0)
    transform = timm.data.create_transform(
        224, is_training=True, scale=(0.08, 1), hflip=0.5, color_jitter=None, auto_augment="rand-m9-mstd0.5-inc1",
        interpolation="bicubic", re_prob=0.25, re_mode="pixel")
    dataset = torchvision.datasets.ImageFolder(options.folder / "train", transform)
    mixup = timm.data.Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, label_smoothing=0.1, num_classes=CLASSES)
    sampler = torch.utils.data.RandomSampler(dataset, replacement=True, num_samples=options.images)
    torch.set_num_threads(1)  # workers do the work; mixing is what the main process has
    start = time.perf_counter()
    loader = torch.utils.data.DataLoader(
        dataset, batch_size=options.batch_size, sampler=sampler, num_workers=options.workers, drop_last=True)
    images, total = 0, 0.0
    for x, y in loader:
        x, y = mixup(x, y)
        images += len(x)
        total += float(x.flatten()[0])
    seconds = time.perf_counter() - start
    name = f"torch {torch.__version__}, torchvision {torchvision.__version__}"
    print(json.dumps(dict(program=name, images=images, seconds=seconds, sum=total)))


def measure(command):
    run = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"jpeg_loading: {' '.join(map(str, command))}\n{run.stderr.strip()}")
    line = json.loads(run.stdout.strip().splitlines()[-1])
    return line["program"], line["images"] / line["seconds"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=pathlib.Path, help="for the pictures; a temporary one by default")
    parser.add_argument("--pictures", type=int, default=512, help="different ones [512]")
    parser.add_argument("--width", type=int, default=500, help="of the pictures, which are 4 : 3 [500]")
    parser.add_argument("--decode", default="exact", help="exact, or scaled as 'norma train --decode scaled' [exact]")
    parser.add_argument("--images", type=int, default=2048, help="images of a round, for each program [2048]")
    parser.add_argument("-b", "--batch-size", type=int, default=64)
    parser.add_argument("-j", "--workers", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--program", default=HERE.parent / "build/cpu-release/benchmarks/jpeg_loading")
    parser.add_argument("--torch", action="store_true", help=argparse.SUPPRESS)  # one round, in a process of its own
    options = parser.parse_args()
    if options.torch:
        run_torch(options)
        return
    with tempfile.TemporaryDirectory() as temporary:
        options.folder = options.folder or pathlib.Path(temporary)
        height = options.width * 3 // 4
        make_pictures(options.folder, options.pictures, options.width, height)
        sizes = [file.stat().st_size for file in options.folder.glob("train/*/*.jpg")]
        print(f"{len(sizes)} JPEGs of {options.width} x {height}, {statistics.mean(sizes) / 1000:.0f} kB each; "
              f"{options.workers} workers, batches of {options.batch_size}")
        ours = [options.program, options.folder, "--decode", options.decode]
        theirs = [sys.executable, __file__, "--torch", "--folder", options.folder]
        numbers = ["--workers", options.workers, "--batch-size", options.batch_size, "--images", options.images]
        ratios = []
        for i in range(options.rounds):
            rates = {}
            for command in (ours, theirs) if i % 2 == 0 else (theirs, ours):
                rates[command is ours] = measure(command + numbers)
            (our_name, our_rate), (their_name, their_rate) = rates[True], rates[False]
            ratios.append(our_rate / their_rate)
            print(f"{our_name}: {our_rate:.0f} images/s; {their_name}: {their_rate:.0f} images/s; "
                  f"ratio {ratios[-1]:.2f}", flush=True)
        print(f"median ratio {statistics.median(ratios):.2f}")
        if options.decode == "scaled":
            said = subprocess.check_output([str(word) for word in [options.program, options.folder, "--psnr", *numbers]])
            psnr = json.loads(said)
            print(f"{psnr['differ']} of {options.images} images differ from --decode exact: PSNR {psnr['median']:.1f} dB "
                  f"in the median, {psnr['lowest']:.1f} at least")


main()
