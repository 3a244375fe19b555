#include "virtual_gpu/test_matmul_cublaslt.h"

#include <fmt/format.h>

using namespace virtual_gpu;
using namespace virtual_gpu::test;

namespace {

std::string text_of_choice(const ProductCase& of) {
  return Described(of).choose();
}

/// The usual product with its memory.
struct Program {
  explicit Program(const ProductCase& of = {}) : described(of) { REQUIRE(described.choose() == ""); }

  std::string text(void* to_a, void* to_b, void* to_d, void* workspace = nullptr) {
    return described.multiply(&one, to_a, to_b, &zero, to_d, workspace);
  }

  Described described;
  float one = 1;
  float zero = 0;
  DeviceNumbers a{NumberType::kFloat32, some_numbers(8 * 12, 1)};
  DeviceNumbers b{NumberType::kFloat32, some_numbers(12 * 16, 2)};
  DeviceNumbers d{NumberType::kFloat32, 8 * 16};
};

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("virtual cuBLASLt: attributes have the size of their values") {
  const Described described({});
  const int64_t wide = 1;
  CHECK(text_of_status(
            cublasLtMatmulDescSetAttribute(described.operation, CUBLASLT_MATMUL_DESC_TRANSA, &wide, sizeof(wide))) ==
        "cublasLtMatmulDescSetAttribute: CUBLASLT_MATMUL_DESC_TRANSA: expected a value of 4 bytes, got 8");
  CHECK(text_of_status(cublasLtMatrixLayoutSetAttribute(described.a, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, nullptr, 4)) ==
        "cublasLtMatrixLayoutSetAttribute: CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: expected a value, got null");
  CHECK(text_of_status(
            cublasLtMatmulPreferenceSetAttribute(described.preference, CUBLASLT_MATMUL_PREF_SEARCH_MODE, &wide, 4)) ==
        "cublasLtMatmulPreferenceSetAttribute: attribute 0: expected one that the virtual GPU knows");
  CHECK(text_of_status(cublasLtMatrixLayoutSetAttribute(nullptr, CUBLASLT_MATRIX_LAYOUT_LD, &wide, 8)) ==
        "cublasLtMatrixLayoutSetAttribute: expected a description, got null");
  cublasLtMatrixLayout_t gone = nullptr;
  REQUIRE(cublasLtMatrixLayoutCreate(&gone, CUDA_R_32F, 4, 4, 4) == CUBLAS_STATUS_SUCCESS);
  REQUIRE(cublasLtMatrixLayoutDestroy(gone) == CUBLAS_STATUS_SUCCESS);
  CHECK(text_of_status(cublasLtMatrixLayoutDestroy(gone)) ==
        "cublasLtMatrixLayoutDestroy: expected a description, got one that was destroyed");
  CHECK(cublasLtMatrixLayoutDestroy(nullptr) == CUBLAS_STATUS_SUCCESS);
}

TEST_CASE("virtual cuBLASLt: descriptions fit each other") {
  CHECK(text_of_choice({}) == "");
  CHECK(text_of_choice({.a = {.rows = 8, .columns = 12, .leading = 7}}) ==
        "A: leading dimension: expected at least its 8 rows, got 7");
  CHECK(text_of_choice({.b = {.rows = 11, .columns = 16, .leading = 12}}) ==
        "B: expected 12 rows and 16 columns, got 11 and 16");
  CHECK(text_of_choice({.a = {.rows = 8, .columns = 12, .leading = 8, .transposed = true}}) ==
        "B: expected 8 rows and 16 columns, got 12 and 16");
  CHECK(text_of_choice({.d = {.rows = 9, .columns = 16, .leading = 9}}) ==
        "C: expected 8 rows and 16 columns, got 9 and 16");
  CHECK(text_of_choice({.a = {.rows = 8, .columns = 0, .leading = 8}}) ==
        "A: expected at least 1 row and 1 column, got 8 and 0");
  CHECK(text_of_choice({.batch = 0}) ==
        "A: batch: expected a count of at least 1 and a stride of at least 0, got 0 and 96");
  CHECK(text_of_choice({.batch = 2, .d_batch = 3}) == "C: batch count: expected A's 2, got 3");
  CHECK(text_of_choice({.d = {.rows = 8, .columns = 16, .leading = 8, .batch_stride = 127}, .batch = 2}) ==
        "D: batch stride: expected separate matrices of 128 elements, got 127");
  CHECK(text_of_choice({.alignment = 2}) ==
        "A: CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT: expected a power of two of at least 4 bytes for float32, got 2");
  Described described({});
  described.set(CUBLASLT_MATMUL_DESC_TRANSB, int32_t{2});
  CHECK(described.choose() == "B: operation: expected CUBLAS_OP_N or CUBLAS_OP_T, got 2");
}

TEST_CASE("virtual cuBLASLt: what is not supported") {
  const auto refused = [](Described& described, const std::string& text) {
    int found = 0;
    CHECK(cublasLtMatmulAlgoGetHeuristic(blas(), described.operation, described.a, described.b, described.d,
                                         described.d, described.preference, 1, &described.way,
                                         &found) == CUBLAS_STATUS_NOT_SUPPORTED);
    CHECK(has(cublasLtGetStatusString(CUBLAS_STATUS_NOT_SUPPORTED),
              "the functionality requested is not supported: " + text));
  };
  Described other_sums({});
  other_sums.set(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, CUBLAS_COMPUTE_64F);
  refused(other_sums, "compute type: expected CUBLAS_COMPUTE_32F for float32, got 70");
  Described half_tf32({.type = NumberType::kFloat16, .compute = CUBLAS_COMPUTE_32F_FAST_TF32});
  refused(half_tf32, "compute type: expected matrices of float32 for TF32, got float16");
  Described other_scale({});
  other_scale.set(CUBLASLT_MATMUL_DESC_SCALE_TYPE, CUDA_R_64F);
  refused(other_scale, "scale type: expected cudaDataType 0 for float32, got 1");
  const DeviceNumbers bias(NumberType::kFloat64, some_numbers(16, 1));
  Described wide_bias({.type = NumberType::kFloat64, .epilogue = CUBLASLT_EPILOGUE_BIAS, .bias = bias.get()});
  refused(wide_bias, "epilogue: expected none for float64");
  Described vector_bias({.a = {.rows = 1, .columns = 12, .leading = 1},
                         .d = {.rows = 1, .columns = 16, .leading = 1},
                         .epilogue = CUBLASLT_EPILOGUE_BIAS,
                         .bias = bias.get(),
                         .alignment = 4});
  refused(vector_bias, "epilogue: expected none for vectors, got (1, 12) * (12, 16), float32");
  Described activation({.epilogue = CUBLASLT_EPILOGUE_GELU});
  refused(activation, "epilogue: expected the default one, BIAS, BGRADA or BGRADB, got 32");
  CHECK(text_of_choice({.epilogue = CUBLASLT_EPILOGUE_BIAS}) ==
        "epilogue: expected CUBLASLT_MATMUL_DESC_BIAS_POINTER, got null");
}

TEST_CASE("virtual cuBLASLt: addresses keep the alignment that the algorithm was chosen for") {
  Program program;
  const DeviceNumbers odd(NumberType::kFloat32, some_numbers(8 * 12, 1), 4);
  CHECK(program.text(odd.get(), program.b.get(), program.d.get()) ==
        fmt::format("cublasLtMatmul: A: expected an address aligned to 16 bytes, which the algorithm was chosen for, "
                    "got 0x{:x}",
                    odd.address()));
  Program promises_less({.alignment = 4});
  CHECK(promises_less.text(odd.get(), program.b.get(), program.d.get()) == "");
  // The heuristic looks at the bias itself.
  const DeviceNumbers bias(NumberType::kFloat32, some_numbers(9, 3));
  Program with_bias({.epilogue = CUBLASLT_EPILOGUE_BIAS, .bias = bias.get()});
  with_bias.described.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias.get() + 4);
  CHECK(has(with_bias.text(program.a.get(), program.b.get(), program.d.get()),
            "cublasLtMatmul: bias: expected an address aligned to 16 bytes"));
  CHECK(fault_of_work() == "");
}

TEST_CASE("virtual cuBLASLt: an algorithm serves the product that it was chosen for") {
  Program program;
  Described other({.d = {.rows = 8, .columns = 16, .leading = 16}});
  other.way = program.described.way;
  CHECK(other.multiply(&program.one, program.a.get(), program.b.get(), &program.zero, program.d.get()) ==
        "algo: expected one that cublasLtMatmulAlgoGetHeuristic gave for (8, 12) * (12, 16), float32, got one for "
        "another product");
  other.way.algo = {};
  CHECK(other.multiply(&program.one, program.a.get(), program.b.get(), &program.zero, program.d.get()) ==
        "algo: expected one that cublasLtMatmulAlgoGetHeuristic gave");
}

TEST_CASE("virtual cuBLASLt: outputs and the workspace have memory of their own") {
  Program program;
  CHECK(program.text(program.a.get(), program.b.get(), program.b.get()) ==
        "cublasLtMatmul: D: expected memory of its own, got bytes of B");
  CHECK(program.text(program.a.get(), nullptr, program.d.get()) ==
        "cublasLtMatmul: B: expected the device's memory, got null");
  CHECK(program.described.multiply(nullptr, program.a.get(), program.b.get(), &program.zero, program.d.get()) ==
        "cublasLtMatmul: alpha: expected a number, got null");
  Program split({.schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, .workspace = 4096});
  REQUIRE(split.described.way.workspaceSize == 2 * 4 * 8 * 16);
  CHECK(split.text(split.a.get(), split.b.get(), split.d.get()) ==
        "cublasLtMatmul: workspace: expected 1024 bytes, got null");
  const DeviceNumbers room(NumberType::kFloat32, some_numbers(300, 5));
  CHECK(split.text(split.a.get(), split.b.get(), room.get(), room.get() + 512 - 16) ==
        "cublasLtMatmul: workspace: expected memory of its own, got bytes of C");
  CHECK(split.text(split.a.get(), split.b.get(), split.d.get(), room.get() + 8) ==
        fmt::format("cublasLtMatmul: workspace: expected an address aligned to 16 bytes, got 0x{:x}",
                    room.address() + 8));
  split.described.way.workspaceSize = 1000;
  CHECK(split.text(split.a.get(), split.b.get(), split.d.get(), room.get()) ==
        "cublasLtMatmul: workspace: expected at least 1024 bytes, got 1000");
  split.described.way.workspaceSize = 1024;
  CHECK(fault_of_work() == "");
  CHECK(split.text(split.a.get(), split.b.get(), split.d.get(), room.get()) == "");
  CHECK(fault_of_work() == "");
  CHECK(room.written_bytes() == 1200 - 1024);  // the rest means nothing now
  // The gradient of a bias is written, too.
  const DeviceNumbers bias(NumberType::kFloat32, 8);
  Program gradient({.epilogue = CUBLASLT_EPILOGUE_BGRADA, .bias = bias.get()});
  gradient.described.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, gradient.a.get());
  CHECK(gradient.text(gradient.a.get(), gradient.b.get(), gradient.d.get()) ==
        "cublasLtMatmul: bias: expected memory of its own, got bytes of A");
}

TEST_CASE("virtual cuBLASLt: the stream finds memory that is too small, or was never written") {
  Program program;
  const DeviceNumbers small(NumberType::kFloat32, some_numbers(8 * 12 - 1, 1));
  CHECK(program.text(small.get(), program.b.get(), program.d.get()) == "");
  CHECK(has(fault_of_work(), fmt::format("cublasLtMatmul: A: expected 384 bytes at 0x{:x} inside one allocation, got "
                                         "380 of them",
                                         small.address())));
  const DeviceNumbers unwritten(NumberType::kFloat32, 12 * 16);
  CHECK(program.text(program.a.get(), unwritten.get(), program.d.get()) == "");
  CHECK(has(fault_of_work(), "cublasLtMatmul: B: read of what was never written: element 0 of (1, 12, 16)"));
  // With beta, C is read.
  program.zero = 1;
  CHECK(program.text(program.a.get(), program.b.get(), program.d.get()) == "");
  CHECK(has(fault_of_work(), "cublasLtMatmul: C: read of what was never written: element 0 of (1, 8, 16)"));
}

TEST_CASE("virtual cuBLASLt: versions and texts") {
  CHECK(cublasLtGetVersion() == CUBLAS_VERSION);
  CHECK(std::string(cublasLtGetStatusString(CUBLAS_STATUS_SUCCESS)) == "success");
  CHECK(text_of_status(cublasLtCreate(nullptr)) == "cublasLtCreate: expected room for the result, got null");
  Described described({});
  int found = 0;
  CHECK(
      text_of_status(cublasLtMatmulAlgoGetHeuristic(nullptr, described.operation, described.a, described.b, described.d,
                                                    described.d, described.preference, 1, &described.way, &found)) ==
      "cublasLtMatmulAlgoGetHeuristic: handle: expected one of cublasLtCreate, got null");
  CHECK(
      text_of_status(cublasLtMatmulAlgoGetHeuristic(blas(), described.operation, described.a, described.b, described.d,
                                                    described.d, described.preference, 0, &described.way, &found)) ==
      "cublasLtMatmulAlgoGetHeuristic: expected to be asked for at least 1 algorithm, got 0");
}
