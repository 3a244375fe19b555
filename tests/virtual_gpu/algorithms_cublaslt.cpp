#include "virtual_gpu/matmul_cublaslt.h"
#include "virtual_gpu/refusal.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace virtual_gpu {

namespace {

/// The widest load of a GPU.
constexpr uint64_t kVector = 16;

/// The largest power of two, up to kVector, that divides all these numbers of bytes.
uint32_t common_alignment(std::initializer_list<uint64_t> bytes) {
  uint64_t bits = kVector;
  for (const uint64_t one : bytes) {
    bits |= one;
  }
  return uint32_t{1} << std::countr_zero(bits);
}

/// What vector loads of a matrix need: the most that the program promises, and its strides allow.
uint32_t needed_alignment(const Operand& matrix, uint32_t promised) {
  const auto width = static_cast<uint64_t>(bytes_of(matrix.type));
  expect(std::has_single_bit(promised) && promised >= width, CUBLAS_STATUS_INVALID_VALUE,
         "{}: CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT: expected a power of two of at least {} bytes for {}, got {}",
         matrix.name, width, name_of(matrix.type), promised);
  const auto column = static_cast<uint64_t>(std::max(matrix.strides[1], matrix.strides[2]));
  return common_alignment({promised, column * width, static_cast<uint64_t>(matrix.strides[0]) * width});
}

/// In the order of preference.
std::vector<Algorithm> all_algorithms(const Product& product) {
  const auto sums =
      static_cast<uint64_t>(product.batch * product.m * product.n) * (product.a.type == NumberType::kFloat64 ? 8 : 4);
  return {
      {.id = 1, .text = "sums by atomics", .scheme = CUBLASLT_REDUCTION_SCHEME_INPLACE, .noise = 64, .varies = true},
      {.id = 2, .text = "sums in the output's type", .scheme = CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE, .noise = 8},
      {.id = 3, .text = "split sums", .scheme = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, .workspace_bytes = 2 * sums},
      {.id = 4, .text = "whole sums"},
  };
}

/// What stands in a cublasLtMatmulAlgo_t.
struct Packed {
  uint64_t mark;
  uint64_t id;
  uint64_t fingerprint;
  uint32_t alignment[4];
  uint32_t bias_alignment;
  uint32_t unused;
};
static_assert(sizeof(Packed) <= sizeof(cublasLtMatmulAlgo_t));
constexpr uint64_t kMark = 0x6C744D61746D756C;

}  // namespace

std::vector<Algorithm> algorithms_of(const Product& product, const MatmulPreference& preference) {
  std::array<uint32_t, 4> needed{};
  const std::array<const Operand*, 4> matrices = {&product.a, &product.b, &product.c, &product.d};
  for (size_t i = 0; i < matrices.size(); ++i) {
    needed[i] = needed_alignment(*matrices[i], preference.alignments[i]);
  }
  const auto& [a, b, c, d] = needed;
  std::vector<Algorithm> offered;
  for (Algorithm algorithm : all_algorithms(product)) {
    const bool is_split = algorithm.scheme != CUBLASLT_REDUCTION_SCHEME_NONE;
    const bool allowed = !is_split || (algorithm.scheme & preference.reduction_schemes) != 0;
    // There is no sum to split of one product, and sums in the workspace take whole vectors.
    const bool in_vectors =
        algorithm.scheme != CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE || std::min({a, b, c, d}) == kVector;
    const bool fits = !is_split || (in_vectors && product.k > 1);
    if (!allowed || !fits || algorithm.workspace_bytes > preference.workspace_bytes) {
      continue;
    }
    std::copy(needed.begin(), needed.end(), algorithm.alignment);
    algorithm.bias_alignment = common_alignment({product.bias().address});
    offered.push_back(algorithm);
  }
  return offered;
}

cublasLtMatmulAlgo_t packed(const Algorithm& algorithm, const Product& product) {
  Packed made{.mark = kMark,
              .id = algorithm.id,
              .fingerprint = product.fingerprint(),
              .alignment = {},
              .bias_alignment = algorithm.bias_alignment,
              .unused = 0};
  std::copy(std::begin(algorithm.alignment), std::end(algorithm.alignment), made.alignment);
  cublasLtMatmulAlgo_t result{};
  std::memcpy(&result, &made, sizeof(made));
  return result;
}

Algorithm unpacked(const cublasLtMatmulAlgo_t& algo, const Product& product) {
  Packed held{};
  std::memcpy(&held, &algo, sizeof(held));
  std::vector<Algorithm> all = all_algorithms(product);
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Algorithm& algorithm) { return algorithm.id == held.id; });
  expect(held.mark == kMark && found != all.end(), CUBLAS_STATUS_INVALID_VALUE,
         "algo: expected one that cublasLtMatmulAlgoGetHeuristic gave");
  expect(held.fingerprint == product.fingerprint(), CUBLAS_STATUS_INVALID_VALUE,
         "algo: expected one that cublasLtMatmulAlgoGetHeuristic gave for {}, got one for another product",
         product.text());
  std::copy(std::begin(held.alignment), std::end(held.alignment), found->alignment);
  found->bias_alignment = held.bias_alignment;
  return *found;
}

}  // namespace virtual_gpu
