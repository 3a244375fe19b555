#!/usr/bin/env python3
"""Test accuracy of resnet50 in PyTorch with the recipe of `norma compare`, for each norm.

Fashion-MNIST at 32 pixels (padded, repeated to 3 channels), AdamW 2e-3 with one-cycle, batch 128, 25,600 training images.
Takes minutes per norm; try it with --images 256 first.

    /usr/bin/python3 benchmarks/pytorch_accuracy.py
"""
import argparse
import gzip
import pathlib
import time

import numpy as np
import torch
from pytorch_networks import NORMS, create_model, parameter_groups


def read_idx(path):
    data = gzip.decompress(path.read_bytes())
    rank = data[3]
    shape = np.frombuffer(data[4:4 + 4 * rank], dtype=">i4")
    return np.frombuffer(data[4 + 4 * rank:], dtype=np.uint8).reshape(shape)


def load(folder, split):
    """Images (N, 3, 32, 32), scaled by mean and deviation of the unpadded training images, and labels."""
    train = read_idx(folder / "train-images-idx3-ubyte.gz") / np.float32(255)
    images = train if split == "train" else read_idx(folder / "t10k-images-idx3-ubyte.gz") / np.float32(255)
    labels = read_idx(folder / f"{'train' if split == 'train' else 't10k'}-labels-idx1-ubyte.gz")
    images = np.pad(images, ((0, 0), (2, 2), (2, 2)))
    images = (images - train.mean()) / train.std()
    images = torch.from_numpy(images.astype(np.float32)).unsqueeze(1).expand(-1, 3, -1, -1)
    return images, torch.from_numpy(labels.astype(np.int64))


def accuracy(model, images, labels, batch):
    model.eval()
    with torch.no_grad():
        right = sum((model(x.contiguous(memory_format=torch.channels_last)).argmax(1) == y).sum().item()
                    for x, y in zip(images.split(batch), labels.split(batch)))
    return right / len(labels)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--norm", action="append", choices=NORMS, help="only this norm (may be repeated)")
    parser.add_argument("--images", type=int, default=25600, help="training images, over as many epochs as it takes")
    parser.add_argument("--test-images", type=int, default=10000)
    parser.add_argument("-b", "--batch-size", type=int, default=128)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--weight-decay", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data-dir", type=pathlib.Path, default=pathlib.Path("/usr/share/datasets/fashion-mnist"))
    options = parser.parse_args()

    images, labels = load(options.data_dir, "train")
    test_images, test_labels = (x[:options.test_images] for x in load(options.data_dir, "test"))
    steps = options.images // options.batch_size
    for norm in options.norm or NORMS:
        torch.manual_seed(options.seed)
        model = create_model(options.model, norm, 10, 2).to(memory_format=torch.channels_last)
        optimizer = torch.optim.AdamW(parameter_groups(model, options.weight_decay), lr=options.lr)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=options.lr, total_steps=steps)
        order = torch.cat([torch.randperm(len(images)) for _ in range(options.images // len(images) + 1)])
        start = time.perf_counter()
        model.train()
        for step in range(steps):
            chosen = order[step * options.batch_size:(step + 1) * options.batch_size]
            x = images[chosen].contiguous(memory_format=torch.channels_last)
            loss = torch.nn.functional.cross_entropy(model(x), labels[chosen])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
        rate = steps * options.batch_size / (time.perf_counter() - start)
        result = accuracy(model, test_images, test_labels, options.batch_size)
        print(f"{options.model} {norm}: test accuracy {100 * result:.1f} %, last loss {loss.item():.3f}, "
              f"{rate:.0f} images/s", flush=True)


if __name__ == "__main__":
    main()
