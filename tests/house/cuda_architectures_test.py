"""What cuda_architectures.py takes for a change of a kernel."""

import tempfile
from pathlib import Path

import cuda_architectures

with tempfile.TemporaryDirectory() as folder:
    root = Path(folder).resolve()
    (root / "ops").mkdir()
    kernel, header, deeper = root / "ops/a.cu", root / "ops/b.h", root / "c.h"
    kernel.write_text('#include "ops/b.h"\n#include <vector>\nint a;  // a comment\n')
    header.write_text('#include "c.h"\n#include "ops/b.h"\nint b;\n')
    deeper.write_text("/* one\n two */ int c;\n")

    flags = ["/opt/cuda/bin/nvcc", "-I/a", "-DFMT_SHARED", "-DNORMA_A", "-O3", "--fmad=false", "-c", "/a/ops/a.cu"]

    def now(words: list = flags) -> str:
        return cuda_architectures.hash_of(kernel, root, words)

    first = now()
    assert first == now()
    kernel.write_text('#include "ops/b.h"\n#include <vector>\n\nint   a;  // another comment\n')
    assert now() == first, "comments and blanks change nothing"
    for file, text in ((kernel, "int a2;"), (header, "int b2;"), (deeper, "int c2;")):
        before = file.read_text()
        file.write_text(before + text)
        assert now() != first, f"a change of {file.name} counts"
        file.write_text(before)
        assert now() == first
    elsewhere = ["/usr/bin/nvcc", "-I/b", "-isystem=/c", "-Werror=all-warnings", "-DNORMA_A", "-O3", "--fmad=false", "-c"]
    assert now(elsewhere) == first, "paths and macros of other libraries change nothing"
    for flag in ("-DNORMA_A", "-O3", "--fmad=false"):
        assert now([word for word in flags if word != flag]) != first, f"{flag} counts"
    deeper.unlink()
    assert now() != first, "a header that is gone counts"

    notes = root / "notes.txt"
    assert cuda_architectures.noted(notes) == {}
    notes.write_text("0123 ops/a.cu\n4567 ops/d.cu\n")
    assert cuda_architectures.noted(notes) == {"ops/a.cu": "0123", "ops/d.cu": "4567"}
