"""The faults that mutations.py plants: one text of the sources is replaced by another."""
import dataclasses


@dataclasses.dataclass
class Fault:
    what: str  # for the table
    file: str
    old: str  # occurs once
    new: str
    units: tuple  # the sources that are compiled with it
    cases: str  # doctest's filter of the test cases
    program: str = "ops"


TEAMS, ROWS, STAGING = "core/cuda/teams.h", "ops/norm/cuda/rows.cu", "core/cuda/staging.cpp"
COLUMNS, PIXELS, RUNS = "ops/norm/cuda/columns.cu", "ops/norm/cuda/pixels.cu", "ops/norm/cuda/runs.cu"
LOSS, OPTIMIZER, RANDOM = "ops/loss/cuda/loss.cu", "ops/optimizer/cuda/optimizer.cu", "ops/random/cuda/random.cu"
INDEX, PLANES, POOL = "ops/shape/cuda/index.cu", "ops/conv/cuda/depthwise_contiguous.cu", "ops/pool/cuda/pool.cu"
DEVICE, TENSOR = "core/cuda/device_cudart.cpp", "core/cuda/tensor.cu"
CUDNN, PLAN, CUBLASLT = "ops/conv/cuda/conv_cudnn.cpp", "ops/conv/cuda/plan_cudnn.cpp", "ops/matmul/cuda/matmul_cublaslt.cpp"
NVCC, ITEMS = "core/cuda/kernel_nvcc.h", "ops/optimizer/cuda/items.h"

BETWEEN = "cuda norms: an operand begins between two vectors*"
WALKS = "cuda norms: forward and backward of every walk*"
SOFTMAX = "cuda softmax: large numbers*,cuda cross entropy: targets*"
STEPS = "cuda optimizer: steps have*,cuda optimizer: a list*"
DEPTHWISE = "cuda depthwise convolutions: planes of several tiles*"
CONV = "conv2d: *,cuda tf32*"
CONV_WITHOUT = "conv2d: strided 1x1*,conv2d: reordered*,conv2d: plain loops*,conv2d: values*,cuda tf32*"
COPIES = "copy: any strides*,cuda tensor kernels: *"

FAULTS = (
    # Barriers and shuffles.
    Fault("no barrier between the sums that warps put into shared memory and their readers", TEAMS,
          "+ 1] = b;\n    }\n    sync_threads();", "+ 1] = b;\n    }", (OPTIMIZER,), "cuda optimizer: sums of squares*"),
    Fault("no barrier before shared memory is written again", TEAMS,
          "b += shared_[2 * i + 1];\n    }\n    sync_threads();", "b += shared_[2 * i + 1];\n    }", (ROWS,), WALKS),
    Fault("no barrier between the parts of a pixel and their readers", PIXELS,
          "[(2 * rank() + 1) * kWarp + lane()] = b;\n    sync_threads();", "[(2 * rank() + 1) * kWarp + lane()] = b;",
          (PIXELS,), BETWEEN),
    Fault("no barrier before the next tile of a depthwise filter", PLANES,
          "sync_threads();  // before the last tile is overwritten", "", (PLANES,), DEPTHWISE),
    Fault("a barrier that only some threads reach", COLUMNS,
          "= numbers[j];\n    }\n  }\n  sync_threads();", "= numbers[j];\n    }\n    sync_threads();\n  }", (COLUMNS,), BETWEEN),
    Fault("a shuffle whose mask names half of its lanes", NVCC,
          "__shfl_xor_sync(0xFFFFFFFFU, value", "__shfl_xor_sync(0x0000FFFFU, value", (LOSS,), SOFTMAX),
    Fault("lanes without a row that stay away from shuffles", "core/cuda/row_teams.h",
          "f(team, there ? wanted : rows - 1, there);", "if (there) {\n      f(team, wanted, true);\n    }", (LOSS,), SOFTMAX),
    Fault("lanes without a row that store the last one's statistics once more", ROWS,
          "if (there && team.rank() == 0) {\n        store_set", "if (team.rank() == 0) {\n        store_set", (ROWS,), WALKS),
    # Indices and bounds.
    Fault("loads of a vector behind each row, which nobody uses", ROWS,
          "if (i < row_vectors) {\n        load<S", "if (i <= row_vectors) {\n        load<S", (ROWS,), WALKS),
    Fault("loads of channels that do not exist, which nobody uses", PIXELS,
          "x[i] = first + i < channels ? to_number(arrays.x[place.base + (first + i) * place.stride]) : T(0);\n    }\n    /// The",
          "x[i] = to_number(arrays.x[place.base + (first + i) * place.stride]);\n    }\n    /// The", (PIXELS,), WALKS),
    Fault("stores of whole vectors at the end of a tensor that has none", RANDOM,
          "if (begin + kWordsOfCounter <= count)", "if (begin < count)", (RANDOM,), "dropout: *"),
    Fault("a sum of one element too many", "ops/loss/cuda/softmax.h",
          "double total = 0;\n    for (int64_t i = team.rank(); i < count;",
          "double total = 0;\n    for (int64_t i = team.rank(); i <= count;", (LOSS,), SOFTMAX),
    Fault("the next row's index", INDEX, "index[row] * loop.x_step", "index[row + 1] * loop.x_step", (INDEX,), "cuda index*"),
    Fault("a search that ends one item too early", ITEMS, "first_piece[middle] <= piece", "first_piece[middle] < piece",
          (OPTIMIZER,), STEPS),
    Fault("a window of one row too many", "ops/pool/cuda/max_pool.h", "h < rows.end;", "h <= rows.end;", (POOL,),
          "cuda pooling: *"),
    Fault("vectors from addresses between two vectors", "core/cuda/number.h",
          "(reinterpret_cast<uintptr_t>(pointers) | ...) % 16) == 0", "(reinterpret_cast<uintptr_t>(pointers) | ...) % 1) == 0",
          (ROWS, COLUMNS, RUNS), BETWEEN),
    # Launches.
    Fault("a grid that lacks its last block", PLANES, "launch(parts.count * of.channels,", "launch(parts.count * of.channels - 1,",
          (PLANES,), DEPTHWISE),
    Fault("a block of more threads than the kernel's launch bounds", COLUMNS,
          "launch(blocks, kColumnThreads, 0, stream, normalise_columns<S>",
          "launch(blocks, 2 * kColumnThreads, 0, stream, normalise_columns<S>", (COLUMNS,), BETWEEN),
    Fault("half of the shared memory that teams need", ROWS, "2 * plan.rows_of_block() * count * sizeof(T)",
          "plan.rows_of_block() * count * sizeof(T)", (ROWS,), BETWEEN),
    Fault("pivots that no block writes", COLUMNS, "place.chunk == 0 && place.row_of_thread == 0", "place.chunk < 0",
          (COLUMNS,), BETWEEN),
    Fault("a list that is freed before the launch that reads it", ITEMS,
          "const DeviceItems<Item> list(some);\n      launch(list.pieces(), kItemThreads, 0, current_stream(), kernel, list.list());",
          "int64_t pieces = 0;\n      ItemList<Item> list;\n      {\n        const DeviceItems<Item> made(some);\n"
          "        pieces = made.pieces();\n        list = made.list();\n      }\n"
          "      launch(pieces, kItemThreads, 0, current_stream(), kernel, list);", (OPTIMIZER,), STEPS),
    Fault("numbers cut off, not rounded, to bfloat16", NVCC, "cvt.rn.bf16.f32", "cvt.rz.bf16.f32", (TENSOR,),
          "copy: *,cuda tensor kernels: *", "core"),
    # Streams, events and the staging buffers.
    Fault("a kernel in the default stream", NVCC, "shared_bytes, stream>>>(", "shared_bytes, nullptr>>>(", (INDEX,),
          "cuda index*"),
    Fault("a copy in the default stream", DEVICE, "bytes, kind, current_stream())", "bytes, kind, nullptr)", (DEVICE,), COPIES,
          "core"),
    Fault("no event behind a copy", DEVICE, "done_.record(current_stream());", "", (DEVICE,), COPIES, "core"),
    Fault("a pinned buffer that is filled again before its copy is done", STAGING,
          "buffers_.back()->wait();\n  return", "return", (STAGING,), "cuda staging: more copies*", "core"),
    Fault("a pinned buffer that is read before its copy is done", STAGING, "before->wait();", "", (STAGING,), COPIES, "core"),
    # What cuDNN and cuBLASLt are told.
    Fault("the height for the width in the strides of channels_last", PLAN, "{c * h * w, 1, w * c, c}", "{c * h * w, 1, h * c, c}",
          (PLAN,), CONV_WITHOUT),
    Fault("an alignment that a view does not have", CUDNN, "least = std::min(least, cuda::alignment_of({argument.pointer}));",
          "(void)argument;", (CUDNN,), CONV),
    Fault("half of the workspace of a convolution", CUDNN, "return cuda::Workspace(bytes);", "return cuda::Workspace(bytes / 2);",
          (CUDNN,), CONV),
    Fault("half of the workspace of a product", CUBLASLT, "workspace(static_cast<int64_t>(way.workspaceSize));",
          "workspace(static_cast<int64_t>(way.workspaceSize / 2));", (CUBLASLT,), "matmul: *"),
    Fault("rows for columns in a matrix", CUBLASLT, "transposed_ ? column_stride : row_stride),",
          "transposed_ ? row_stride : column_stride),", (CUBLASLT,), "matmul: *"),
    Fault("a product that adds to what was never written", CUBLASLT, "bias_first ? 1.0 : 0.0", "1.0", (CUBLASLT,), "matmul: *"),
)
