#!/usr/bin/env python3
"""What a GPU reaches through PyTorch's libraries: the ceilings and choices that Norma's CUDA kernels are designed by.

  pytorch_gpu_ceilings.py [--only machine,copy,product,conv,conv1x1,depthwise,gelu,graph] [-b 64] [--json F]

Every time is a median of 20, by CUDA events, with the L2 cache overwritten before each. A line per case; --json keeps all.
"""
import argparse
import ctypes
import glob
import json
import os
import statistics
import subprocess

import torch
import torch.nn.functional as F
import torchvision

DEV = "cuda"
DTYPES = {"float32": torch.float32, "tf32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class Timer:
    def __init__(self):
        self.flush = torch.empty(256 << 20, dtype=torch.uint8, device=DEV)

    def __call__(self, fn, reps=20, warm=5):
        """Milliseconds of fn with a cold L2 cache."""
        for _ in range(warm):
            fn()
        pairs = []
        for _ in range(reps):
            self.flush.zero_()
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            fn()
            end.record()
            pairs.append((start, end))
        torch.cuda.synchronize()
        return statistics.median(s.elapsed_time(e) for s, e in pairs)


def cudnn_device_properties():
    """cuDNN's own JSON of the device, which lets heuristics run on machines without one."""
    import nvidia.cudnn
    lib = ctypes.CDLL(sorted(glob.glob(os.path.join(list(nvidia.cudnn.__path__)[0], "lib", "libcudnn.so.*")))[0])
    handle, prop = ctypes.c_void_p(), ctypes.c_void_p()
    # CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, CUDNN_ATTR_DEVICEPROP_HANDLE, ..._JSON_REPRESENTATION, CUDNN_TYPE_HANDLE, CUDNN_TYPE_CHAR
    descriptor, name_handle, name_json, type_handle, type_char = 38, 2701, 2702, 0, 24
    check = lambda code, what: code == 0 or (_ for _ in ()).throw(RuntimeError(f"{what}: cuDNN status {code}"))
    check(lib.cudnnCreate(ctypes.byref(handle)), "create")
    check(lib.cudnnBackendCreateDescriptor(descriptor, ctypes.byref(prop)), "descriptor")
    check(lib.cudnnBackendSetAttribute(prop, name_handle, type_handle, ctypes.c_int64(1), ctypes.byref(handle)), "set handle")
    check(lib.cudnnBackendFinalize(prop), "finalize")
    size = ctypes.c_int64()
    check(lib.cudnnBackendGetAttribute(prop, name_json, type_char, ctypes.c_int64(0), ctypes.byref(size), None), "size")
    text = ctypes.create_string_buffer(size.value + 1)
    check(lib.cudnnBackendGetAttribute(prop, name_json, type_char, size, ctypes.byref(size), text), "json")
    return json.loads(text.value.decode())


def machine(_, __):
    smi = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version,memory.total,clocks.max.sm,clocks.max.mem", "--format=csv,noheader"],
                         capture_output=True, text=True).stdout.strip()
    yield {"nvidia_smi": smi, "torch": torch.__version__, "torchvision": torchvision.__version__, "cuda": torch.version.cuda,
           "cudnn": torch.backends.cudnn.version(), "multiprocessors": torch.cuda.get_device_properties(0).multi_processor_count,
           "l2_bytes": torch.cuda.get_device_properties(0).L2_cache_size}
    yield {"cudnn_device_properties": cudnn_device_properties()}


def copy(time, _):
    for mib in (8, 32, 128, 1024):
        x = torch.randn(mib << 18, device=DEV)
        y = torch.empty_like(x)
        yield {"mib": mib, "copy_gb_s": 2 * x.nbytes / time(lambda: y.copy_(x)) / 1e6}


def product(time, _):
    for name, dt in DTYPES.items():
        torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
        a, b = (torch.randn(8192, 8192, device=DEV, dtype=dt) for _ in range(2))
        yield {"dtype": name, "tflop_s": 2 * 8192**3 / time(lambda: a @ b, reps=7, warm=3) / 1e9}


def resnet50_convs(batch):
    """Distinct convolutions of ResNet-50 at 224² with how often each occurs: (n, c_in, h, c_out, k, stride, padding)."""
    found = {}
    model = torchvision.models.resnet50()

    def note(module, inputs, _):
        n, c, h, _ = inputs[0].shape
        key = (batch, c, h, module.out_channels, module.kernel_size[0], module.stride[0], module.padding[0])
        found[key] = found.get(key, 0) + 1
    for m in model.modules():
        if isinstance(m, torch.nn.Conv2d):
            m.register_forward_hook(note)
    model.eval()(torch.zeros(1, 3, 224, 224))
    return found


def passes(time, x, w, dy, stride, padding, groups=1):
    args = ([stride, stride], [padding, padding], [1, 1], False, [0, 0], groups)
    back = lambda mask: torch.ops.aten.convolution_backward(dy, x, w, None, *args, mask)
    return {"fwd_ms": time(lambda: F.conv2d(x, w, None, stride, padding, 1, groups)), "dx_ms": time(lambda: back([True, False, False])),
            "dw_ms": time(lambda: back([False, True, False]))}


def conv(time, batch):
    for name in ("bfloat16", "float16", "tf32", "float32"):
        torch.backends.cudnn.allow_tf32 = name == "tf32"
        for benchmark in (False, True):
            torch.backends.cudnn.benchmark = benchmark
            total = 0
            for (n, ci, h, co, k, s, p), count in resnet50_convs(batch).items():
                x = torch.randn(n, ci, h, h, device=DEV, dtype=DTYPES[name]).contiguous(memory_format=torch.channels_last)
                w = torch.randn(co, ci, k, k, device=DEV, dtype=DTYPES[name]).contiguous(memory_format=torch.channels_last)
                y = F.conv2d(x, w, None, s, p)
                row = passes(time, x, w, torch.randn_like(y), s, p)
                total += count * (row["fwd_ms"] + row["dw_ms"] + (row["dx_ms"] if ci > 3 else 0))
                flop = 2 * y.numel() * ci * k * k
                yield {"dtype": name, "benchmark": benchmark, "n": n, "c_in": ci, "h": h, "c_out": co, "k": k, "stride": s, "count": count,
                       **row, "fwd_tflop_s": flop / row["fwd_ms"] / 1e9}
            yield {"dtype": name, "benchmark": benchmark, "all_convolutions_of_a_step_ms": total, "img_per_s": batch / total * 1e3}


def conv1x1(time, batch):
    torch.backends.cudnn.benchmark = True
    for (n, ci, h, co, k, s, _) in resnet50_convs(batch):
        if k != 1 or s != 1:
            continue
        x = torch.randn(n, ci, h, h, device=DEV, dtype=torch.bfloat16).contiguous(memory_format=torch.channels_last)
        w = torch.randn(co, ci, 1, 1, device=DEV, dtype=torch.bfloat16).contiguous(memory_format=torch.channels_last)
        dy = torch.randn(n, co, h, h, device=DEV, dtype=torch.bfloat16).contiguous(memory_format=torch.channels_last)
        rows, grads, mat = x.permute(0, 2, 3, 1).reshape(-1, ci), dy.permute(0, 2, 3, 1).reshape(-1, co), w.reshape(co, ci)
        yield {"c_in": ci, "h": h, "c_out": co, **passes(time, x, w, dy, 1, 0), "product_fwd_ms": time(lambda: rows @ mat.t()),
               "product_dx_ms": time(lambda: grads @ mat), "product_dw_ms": time(lambda: grads.t() @ rows)}


def depthwise(time, batch):
    torch.backends.cudnn.benchmark = True
    for name in ("bfloat16", "float32"):
        torch.backends.cudnn.allow_tf32 = False
        for c, h in ((96, 56), (192, 28), (384, 14), (768, 7)):
            for fmt in (torch.contiguous_format, torch.channels_last):
                for cudnn in (True, False):
                    x = torch.randn(batch, c, h, h, device=DEV, dtype=DTYPES[name]).contiguous(memory_format=fmt)
                    w = torch.randn(c, 1, 7, 7, device=DEV, dtype=DTYPES[name])
                    with torch.backends.cudnn.flags(enabled=cudnn, benchmark=True, allow_tf32=False):
                        yield {"dtype": name, "c": c, "h": h, "format": str(fmt).split(".")[1], "cudnn": cudnn,
                               **passes(time, x, w, torch.randn_like(x), 1, 3, c)}


def gelu(time, batch):
    for c, h in ((96, 56), (192, 28), (384, 14), (768, 7)):
        rows = batch * h * h
        x = torch.randn(rows, c, device=DEV, dtype=torch.bfloat16)
        w, b = torch.randn(4 * c, c, device=DEV, dtype=torch.bfloat16), torch.randn(4 * c, device=DEV, dtype=torch.bfloat16)
        hidden = F.linear(x, w, b)
        yield {"rows": rows, "c": c, "linear_ms": time(lambda: F.linear(x, w, b)), "gelu_erf_ms": time(lambda: F.gelu(hidden)),
               "gelu_erf_backward_ms": time(lambda: torch.ops.aten.gelu_backward(hidden, hidden)),
               "linear_with_gelu_tanh_epilogue_ms": time(lambda: torch._addmm_activation(b, x, w.t(), use_gelu=True))}


def graph(time, _):
    torch.backends.cudnn.benchmark = True
    for model in ("resnet50", "convnext_tiny"):
        for batch in (8, 32, 256):
            net = getattr(torchvision.models, model)().to(DEV, memory_format=torch.channels_last).train()
            opt = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
            x = torch.randn(batch, 3, 224, 224, device=DEV).contiguous(memory_format=torch.channels_last)
            y = torch.randint(0, 1000, (batch,), device=DEV)

            def step():
                opt.zero_grad(set_to_none=True)
                with torch.autocast(DEV, dtype=torch.bfloat16, cache_enabled=False):
                    loss = F.cross_entropy(net(x), y)
                loss.backward()
                opt.step()

            side = torch.cuda.Stream()
            with torch.cuda.stream(side):
                for _ in range(3):
                    step()
            torch.cuda.synchronize()
            eager = time(step, reps=10, warm=1)
            captured = torch.cuda.CUDAGraph()
            with torch.cuda.graph(captured):
                step()
            yield {"model": model, "batch": batch, "eager_ms": eager, "graph_ms": time(captured.replay, reps=10, warm=1)}


PARTS = dict(machine=machine, copy=copy, product=product, conv=conv, conv1x1=conv1x1, depthwise=depthwise, gelu=gelu, graph=graph)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--only", default=",".join(PARTS))
    p.add_argument("-b", "--batch", type=int, default=64)
    p.add_argument("--json")
    a = p.parse_args()
    rows, time = [], Timer()
    for part in a.only.split(","):
        try:
            for row in PARTS[part](time, a.batch):
                rows.append({"part": part, **row})
                print(json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in rows[-1].items()}), flush=True)
                if a.json:
                    with open(a.json, "w") as f:
                        json.dump(rows, f, indent=1)
        except Exception as e:  # a part that fails does not take the others with it
            rows.append({"part": part, "error": f"{type(e).__name__}: {e}".splitlines()[0][:300]})
            print(json.dumps(rows[-1]), flush=True)


main()
