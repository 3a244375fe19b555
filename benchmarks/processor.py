"""The processor that figures are measured on: what people call it, and the folder that its results go to."""
import re

LIMITS = {  # what `--isa` sets, so that each program uses no more than these instructions
    "avx2": {"NORMA_SIMD": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "DNNL_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2",
             "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
}

PRESETS = {None: "cpu-release", "avx2": "cpu-avx2"}  # whose programs use no more: a native build cannot be held to less


def fields(text):
    """The first processor of /proc/cpuinfo."""
    first = text.strip().split("\n\n")[0]
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in first.splitlines())}


def widest(flags):
    for flag, name in (("avx512f", "AVX-512"), ("avx2", "AVX2"), ("asimd", "NEON")):
        if flag in flags:
            return name
    return "SSE"


def describe(isa=None, text=None):
    """{"name", "folder"}: "Intel Xeon (6-207), AVX-512", "intel-xeon-6-207-avx-512". Names that vendors hide behind
    "Processor" are told apart by family and model. `isa`: a key of LIMITS that the programs are held to."""
    cpu = fields(text or open("/proc/cpuinfo").read())
    name = re.sub(r"\((R|TM|r|tm)\)|\bCPU\b|\bProcessor\b|@.*|\d+-Core", " ", cpu.get("model name", "unknown"))
    name = " ".join(name.split())
    if "cpu family" in cpu:
        name += f" ({cpu['cpu family']}-{cpu.get('model', '?')})"
    own = widest(cpu.get("flags", cpu.get("Features", "")).split())
    name += f", {own}" if isa is None else f", held to {isa.upper()}"
    return {"name": name, "folder": re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")}
