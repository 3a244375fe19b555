#!/usr/bin/env python3
"""Fine-tunes with a frozen stem in Norma and in PyTorch, from the same file and on the same batches, and compares.

timm and torchvision make networks with random weights, and this writes each as .safetensors and .pth with a head of
other classes. `norma train --initial-checkpoint FILE --freeze STEM` makes 20 steps of SGD with momentum and decay on
drawn images; PyTorch makes the same steps. Prints, for each network, precision and memory format, the largest
difference of a trained tensor (weights and running statistics) as a share of the tensor's largest element, the tensor,
and the largest difference of a loss. Beside the figures stands the difference of PyTorch in that precision from its own
float64: a ReLU near 0 falls to either side of its kink, and steps of training enlarge that. The frozen tensors must be
the file's, bit by bit. "steps" is how far the weight that moved least went, in the same measure. Fails above 1e-10 in
float64, and in float32 above 1e-5 and 4 times PyTorch's own difference. Needs torch, torchvision, timm and safetensors
in the Python that runs it. Set OMP_NUM_THREADS=1 on a busy machine.

    ./run build && build/peers/bin/python tests/parity/finetune.py      # peers.py makes that environment
    python tests/parity/finetune.py --only convnext_atto --steps 5
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import timm
    import torch
    import torchvision
    from PIL import Image
    from safetensors.torch import load_file, save_file
except ImportError as error:
    sys.exit(f"finetune: {error}; needs torch, torchvision, timm and safetensors: run it with build/peers/bin/python, "
             "which benchmarks/peers.py makes")

ROOT = pathlib.Path(__file__).resolve().parents[2]
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CLASSES, FILE_CLASSES, BATCH, SIZE = 5, 10, 8, 64
LR, MOMENTUM, DECAY = 1e-4, 0.9, 1e-3
STEMS = {"resnet": ["conv1", "bn1"], "convnext": ["stem"], "vit": ["patch_embed"]}
CASES = [("timm", "resnet18", ""), ("timm", "resnet50", ""), ("timm", "convnext_atto", ""), ("torchvision", "resnet50", "")]
CASES += [("timm", "vit_tiny_patch16_224", ""), ("timm", "vit_tiny_patch16_224", "global_pool=avg"),
          ("timm", "vit_tiny_patch16_224", "qk_norm"), ("timm", "vit_tiny_patch16_224", "init_values=0.1"),
          ("timm", "vit_small_patch16_224", "global_pool=avg qk_norm init_values=0.1")]
OPTIONS = {"global_pool=avg": ["--global-pool", "avg"], "qk_norm": ["--qk-norm", "layer2d"],
           "init_values=0.1": ["--layer-scale", 0.1]}  # timm's, and Norma's


def philox(seed, counter, subsequence):
    """The first 64 bits of core/philox.h."""
    mask = 0xFFFFFFFF
    c = [counter & mask, counter >> 32, subsequence & mask, subsequence >> 32]
    key = [seed & mask, seed >> 32]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ key[0], b & mask, (a >> 32) ^ c[3] ^ key[1], a & mask]
        key = [(key[0] + 0x9E3779B9) & mask, (key[1] + 0xBB67AE85) & mask]
    return c[0] << 32 | c[1]


def order_of(count, seed):
    """The order of the images in the first epoch, as data/loader.cpp shuffles them."""
    order = list(range(count))
    for i in range(count - 1, 0, -1):
        j = philox(seed, i, 1 << 61) % (i + 1)
        order[i], order[j] = order[j], order[i]
    return order


def make_images(folder, steps, seed):
    """An image folder, and its training images as (N, 3, H, W) in [0, 255], with labels, in the order of the files."""
    random = np.random.default_rng(seed)
    images, labels = [], []
    for label in range(CLASSES):
        for split, count in (("train", BATCH * steps // CLASSES), ("val", 1)):
            (folder / split / f"class{label}").mkdir(parents=True)
            for number in range(count):
                image = random.integers(0, 256, (SIZE, SIZE, 3), np.uint8)
                image[:, :, label % 3] //= 1 + label
                Image.fromarray(image).save(folder / split / f"class{label}" / f"{number:05}.png")
                if split == "train":
                    images.append(image.transpose(2, 0, 1))
                    labels.append(label)
    return np.stack(images), np.array(labels)


def make_network(library, name, options, classes):
    if library == "timm":
        given = {"img_size": SIZE} if name.startswith("vit") else {}
        for option in options.split():
            key, _, value = option.partition("=")
            given[key] = {"avg": "avg", "0.1": 0.1, "": True}[value]
        return timm.create_model(name, num_classes=classes, **given)
    return getattr(torchvision.models, name)(num_classes=classes, zero_init_residual=True)  # as timm does by default


def stir(network, seed):
    """Gives the running statistics and biases of norms values that matter, and norms that begin at 0 a small weight."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for key, x in network.state_dict().items():
            if key.endswith("running_var"):
                x.copy_(0.5 + torch.rand(x.shape, generator=generator))
            elif x.dim() == 1 and not key.endswith("weight"):
                x.add_(0.02 * torch.randn(x.shape, generator=generator))
            elif key.endswith("weight") and x.dim() == 1:
                x.mul_(0.9 + 0.2 * torch.rand(x.shape, generator=generator)).clamp_(min=0.2)


def norma_train(arguments, model, options, weights, stem, data, output, precision, channels_last, steps, lr):
    command = [arguments.norma, "train", "--model", model, "--initial-checkpoint", weights, "--dataset", "imagefolder",
               "--data-dir", data, "--img-size", SIZE, "--crop-pct", 1, "--batch-size", BATCH,
               "--images", BATCH * steps,
               "--opt", "sgd", "--momentum", MOMENTUM, "--weight-decay", DECAY, "--lr", lr, "--sched", "constant",
               "--seed", 3, "--precision", precision, "--freeze", ",".join(part + ".*" for part in stem),
               "--log-interval", 1,
               "--workers", 0, "--quiet", "--output", output]
    command += [] if channels_last else ["--no-channels-last"]
    command += [word for option in options.split() for word in OPTIONS[option]]
    run = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"finetune: norma train failed with exit code {run.returncode}: {run.stderr.strip()}")
    rows = (output / "metrics.csv").read_text().splitlines()[1:]
    state = {key: x for key, x in load_file(output / "last.safetensors").items()
             if not key.startswith(("optimizer.", "ema."))}
    return state, [float(row.split(",")[4]) for row in rows]


def torch_train(library, name, options, start, stem, images, labels, dtype, channels_last, steps):
    network = make_network(library, name, options, CLASSES).to(dtype)
    network.load_state_dict({key: x.to(dtype) if x.is_floating_point() else x for key, x in start.items()})
    network = network.to(memory_format=torch.channels_last if channels_last else torch.contiguous_format).train()
    for key in stem:
        part = network.get_submodule(key).requires_grad_(False)
        part.eval()
    trained = [(key, x) for key, x in network.named_parameters() if x.requires_grad]
    is_gain = lambda x: x.dim() == 4 and x.numel() == x.shape[0]
    decays = lambda key, x: x.dim() > 1 and not is_gain(x) and key not in ("cls_token", "pos_embed")
    optimizer = torch.optim.SGD([{"params": [x for key, x in trained if decays(key, x)], "weight_decay": DECAY},
                                 {"params": [x for key, x in trained if not decays(key, x)]}], lr=LR, momentum=MOMENTUM)
    losses = []
    for step in range(steps):
        some = slice(step * BATCH, (step + 1) * BATCH)
        x = images[some].to(dtype)
        loss = torch.nn.functional.cross_entropy(network(x), labels[some])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return network.state_dict(), losses


def compare(found, expected, names):
    """The largest difference of a tensor as a share of its largest element, and the tensor."""
    worst = (0.0, "")
    for name in names:
        a, b = found[name].double().reshape(-1), expected[name].double().reshape(-1)
        distance = ((a - b).abs().max() / b.abs().max()).item()
        if not distance <= worst[0]:  # also takes NaN
            worst = (distance if distance == distance else float("inf"), name)
    return worst


def run_case(arguments, library, name, options, folder, failures):
    stem = STEMS[name.rstrip("0123456789").split("_")[0]]
    torch.manual_seed(1 if library == "timm" else 2)
    network = make_network(library, name, options, FILE_CLASSES)
    stir(network, 2)
    files = [folder / "weights.safetensors", folder / "weights.pth"]
    save_file({key: x.contiguous() for key, x in network.state_dict().items()}, files[0])
    torch.save(network.state_dict(), files[1])
    data = folder / "data"
    images, labels = make_images(data, arguments.steps, 4)
    order = order_of(len(images), 3)
    images, labels = images[order], torch.from_numpy(labels[order])
    column = lambda values: np.array(values, np.float32).reshape(3, 1, 1)
    images = torch.from_numpy((images.astype(np.float32) / np.float32(255) - column(MEAN)) / column(STD))

    # The head's start values are Norma's: a step at a rate of nearly 0 shows them.
    first, _ = norma_train(arguments, name, options, files[0], stem, data, folder / "head", "float64", False, 1, 1e-300)
    start = dict(network.state_dict())
    for key in start:
        if found := [other for other in first if other == key and first[other].numel() != start[key].numel()]:
            start[key] = first[found[0]].reshape(CLASSES, *start[key].shape[1:]).float()
    frozen = [key for key in start if key.startswith(tuple(part + "." for part in stem))]
    trained = [key for key in start if key not in frozen and start[key].is_floating_point()]

    wide, wide_losses = torch_train(library, name, options, start, stem, images, labels, torch.float64, False,
                                    arguments.steps)
    for precision, dtype, limit in (("float32", torch.float32, 1e-5), ("float64", torch.float64, 1e-10)):
        for channels_last in (False, True):
            theirs, losses = torch_train(library, name, options, start, stem, images, labels, dtype, channels_last,
                                         arguments.steps)
            file = files[int(channels_last)]
            output = folder / f"{precision}-{channels_last}"
            ours, our_losses = norma_train(arguments, name, options, file, stem, data, output, precision, channels_last,
                                           arguments.steps, LR)
            distance, tensor = compare(ours, theirs, trained)
            own, _ = compare(theirs, wide, trained)
            steps = min(compare(theirs, start, [key])[0] for key in trained if start[key].dim() > 1)
            loss = max(abs(a - b) for a, b in zip(our_losses, losses, strict=True))
            moved = [key for key in frozen
                     if not torch.equal(ours[key].to(start[key].dtype).reshape(start[key].shape), start[key])]
            fault = f"  FAILED: moved: {', '.join(moved)}" if moved else ""
            if not distance <= limit + (4 * own if precision == "float32" else 0):
                fault += "  FAILED"
            failures += [name] if fault else []
            print(f"{library:12} {name:22} {file.suffix:13} {precision:8} "
                  f"{'channels_last' if channels_last else 'contiguous':14} {distance:8.1e}  {own:8.1e}  "
                  f"{loss:8.1e}  {steps:7.1e}  {tensor}{'  with ' + options if options else ''}{fault}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--norma", type=pathlib.Path, default=ROOT / "build/cpu-release/cli/norma")
    parser.add_argument("--only", action="append", help="only this model (may be repeated)")
    parser.add_argument("--steps", type=int, default=20, help="a multiple of 5")
    arguments = parser.parse_args()
    if not arguments.norma.exists():
        sys.exit(f"finetune: {arguments.norma} does not exist; build it first: ./run build")
    print(f"{arguments.steps} steps of {BATCH} images of {SIZE}x{SIZE}; PyTorch {torch.__version__}, "
          f"torchvision {torchvision.__version__}, timm {timm.__version__}")
    print(f"{'library':12} {'network':22} {'file':13} {'dtype':8} {'format':14} {'tensors':8}  {'own f64':8}  "
          f"{'loss':8}  {'steps':7}  worst tensor", flush=True)
    failures = []
    for library, name, options in CASES:
        if not arguments.only or name in arguments.only:
            with tempfile.TemporaryDirectory() as folder:
                run_case(arguments, library, name, options, pathlib.Path(folder), failures)
    sys.exit(f"finetune: {len(failures)} failed" if failures else 0)


if __name__ == "__main__":
    main()
