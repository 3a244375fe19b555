#!/usr/bin/env python3
"""Times PyTorch on random images: a network's training step or inference, or single norms.

Networks are timm's where timm is installed, else torchvision's. First a line of JSON with the versions, then a network
does one step for each line on standard input and prints its seconds; norms are printed as a second line of JSON.
With --procs, processes share each batch by DistributedDataParallel and gloo, and the first of them reads and prints.
peers.py runs this beside Norma.
"""
import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F


def say(more):
    print(json.dumps({"framework": f"PyTorch {torch.__version__}", "threads": torch.get_num_threads()} | more), flush=True)


def create_network(name, options):
    try:
        import timm
        return timm.create_model(name, **options), f"timm {timm.__version__}"
    except ImportError:
        import torchvision
        return torchvision.models.get_model(name), f"torchvision {torchvision.__version__}"


def turns(ranks):
    """Comes to each line on standard input, in all processes."""
    told = torch.ones(1)
    while told:
        if not ranks or dist.get_rank() == 0:
            told.fill_(bool(sys.stdin.readline()))
        if ranks:
            dist.broadcast(told, 0)
        if told:
            yield


def run_network(options):
    sizes = {"img_size": options.img_size, "patch_size": options.patch_size} if options.patch_size else {}
    model, definition = create_network(options.model, sizes)
    if options.rank == 0:
        say({"definition": definition})
    memory_format = torch.channels_last if options.channels_last else torch.contiguous_format
    dtype = torch.bfloat16 if options.precision == "bfloat16" else torch.float32
    if options.grad_checkpointing:
        model.set_grad_checkpointing()
    model = model.to(memory_format=memory_format, dtype=dtype).train(options.bench == "train")
    batch = options.batch_size // options.procs
    images = torch.randn(batch, 3, options.img_size, options.img_size)
    images = images.to(memory_format=memory_format, dtype=dtype)
    labels = torch.randint(0, 1000, (batch,))
    forward = torch.compile(model) if options.compile else model
    if options.procs > 1:
        # The buffers are not sent in each step, as Norma does not either.
        forward = torch.nn.parallel.DistributedDataParallel(forward, broadcast_buffers=False, gradient_as_bucket_view=True)
    amp = torch.autocast("cpu", torch.bfloat16, enabled=options.precision == "amp_bfloat16")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.05)

    def train():
        optimizer.zero_grad(set_to_none=True)
        with amp:
            loss = F.cross_entropy(forward(images).float(), labels)
        loss.backward()
        optimizer.step()

    def infer():
        with torch.inference_mode(), amp:
            forward(images)

    step = train if options.bench == "train" else infer
    for _ in turns(options.procs > 1):
        start = time.perf_counter()
        step()
        if options.rank == 0:
            print(time.perf_counter() - start, flush=True)


def run_ranks(options):
    """Starts the other processes, and is the first itself."""
    with tempfile.TemporaryDirectory() as folder:
        address = options.address or f"file://{folder}/address"
        others = [subprocess.Popen([sys.executable, *sys.argv, "--rank", str(rank), "--address", address],
                                   stdin=subprocess.DEVNULL) for rank in range(1, options.procs) if options.rank == 0]
        dist.init_process_group("gloo", init_method=address, rank=options.rank, world_size=options.procs)
        run_network(options)
        dist.destroy_process_group()
        for other in others:
            other.wait()


def norm_function(norm, channels, device="cpu"):
    """y = f(x, weight, bias), as PyTorch users write the norm."""
    if norm == "batch":
        mean, var = torch.zeros(channels, device=device), torch.ones(channels, device=device)
        return lambda x, w, b: F.batch_norm(x, mean, var, w, b, training=True)
    if norm == "layer2d":
        return lambda x, w, b: F.layer_norm(x.permute(0, 2, 3, 1), (channels,), w, b, 1e-6).permute(0, 3, 1, 2)
    if norm == "rms2d":
        return lambda x, w, b: F.rms_norm(x.permute(0, 2, 3, 1), (channels,), w, 1e-6).permute(0, 3, 1, 2)
    if norm == "instance":
        return lambda x, w, b: F.instance_norm(x, weight=w, bias=b)
    groups = int(norm.split(":")[1])
    return lambda x, w, b: F.group_norm(x, groups, w, b)


def forward_and_backward(f, inputs, dy, budget=0.8, least=5):
    """Median milliseconds of each, run in turns as `norma bench-norms` does: the caches hold what a pair leaves there."""
    forward, backward = [], []
    end = time.perf_counter() + budget
    while len(forward) < least + 1 or time.perf_counter() < end:
        start = time.perf_counter()
        y = f()
        middle = time.perf_counter()
        torch.autograd.grad(y, inputs, dy)
        backward.append(time.perf_counter() - middle)
        forward.append(middle - start)
        del y
    return [1e3 * statistics.median(times[1:]) for times in (forward, backward)]


def time_norms(options):
    rows = []
    for shape in options.shapes.split(","):
        n, c, h, w = (int(size) for size in shape.split("x"))
        for norm in options.norms.split(","):
            if norm == "rms2d" and not hasattr(F, "rms_norm"):
                continue
            for name, memory_format in (("contiguous", torch.contiguous_format), ("channels_last", torch.channels_last)):
                x = torch.randn(n, c, h, w).to(memory_format=memory_format).requires_grad_()
                weight, bias = torch.rand(c, requires_grad=True), torch.rand(c, requires_grad=True)
                dy = torch.randn(n, c, h, w).to(memory_format=memory_format)
                f = norm_function(norm, c)
                inputs = [x, weight] if norm == "rms2d" else [x, weight, bias]
                for direction, ms in zip(("forward", "backward"), forward_and_backward(lambda: f(x, weight, bias), inputs, dy)):
                    rows.append({"norm": norm, "sizes": shape, "format": name, "direction": direction, "ms": ms})
    return {"rows": rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", choices=("train", "infer", "norms"), default="train")
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("-b", "--batch-size", type=int, default=8)
    parser.add_argument("--img-size", type=int, default=224)
    parser.add_argument("--patch-size", type=int, help="of a vision transformer of timm's")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--precision", choices=("float32", "bfloat16", "amp_bfloat16"), default="float32")
    parser.add_argument("--grad-checkpointing", action="store_true", help="timm's set_grad_checkpointing()")
    parser.add_argument("--compile", action="store_true", help="torch.compile")
    parser.add_argument("--procs", type=int, default=1, help="processes that share a batch")
    parser.add_argument("--rank", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    parser.add_argument("--norms", default="batch,layer2d,group:32,group:1,instance,rms2d")
    parser.add_argument("--shapes", default="8x256x56x56")
    options = parser.parse_args()
    torch.manual_seed(0)
    if options.bench == "norms":
        say({})
        print(json.dumps(time_norms(options)))
    elif options.procs > 1:
        run_ranks(options)
    else:
        run_network(options)


if __name__ == "__main__":
    sys.exit(main())
