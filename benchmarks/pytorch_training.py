#!/usr/bin/env python3
"""Times training steps of one network in PyTorch on random images and prints one line of JSON: train_step.cpp's twin."""
import argparse
import json
import time

import torch
from pytorch_networks import create_model, parameter_groups

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model", default="resnet50")
parser.add_argument("--norm", default="")
parser.add_argument("-b", "--batch-size", type=int, default=128)
parser.add_argument("--img-size", type=int, default=32)
parser.add_argument("--patch-size", type=int, default=4)
parser.add_argument("--channels-last", action="store_true")
parser.add_argument("--warmup", type=int, default=3)
parser.add_argument("--steps", type=int, default=10)
options = parser.parse_args()

torch.manual_seed(0)
memory_format = torch.channels_last if options.channels_last else torch.contiguous_format
model = create_model(options.model, options.norm, 10, options.patch_size).to(memory_format=memory_format)
optimizer = torch.optim.AdamW(parameter_groups(model, 0.05), lr=1e-3)
images = torch.randn(options.batch_size, 3, options.img_size, options.img_size).to(memory_format=memory_format)
labels = torch.randint(0, 10, (options.batch_size,))

seconds = []
for step in range(options.warmup + options.steps):
    start = time.perf_counter()
    optimizer.zero_grad(set_to_none=True)
    torch.nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()
    if step >= options.warmup:
        seconds.append(time.perf_counter() - start)

print(json.dumps({"framework": f"pytorch {torch.__version__}",
                  "format": "channels_last" if options.channels_last else "contiguous",
                  "threads": torch.get_num_threads(), "batch_size": options.batch_size, "seconds": seconds}))
