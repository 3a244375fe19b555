#include "core/cuda/graph_cudnn.h"
#include "core/cuda/runtime.h"
#include "error_text.h"

#include <doctest/doctest.h>

using namespace norma;
using namespace norma::cuda;

TEST_CASE("cuda runtime: an error that was reported is not that of the next launch") {
  const cudaError_t result = cudaSetDevice(1000);  // fails with a GPU and without
  REQUIRE(result != cudaSuccess);
  REQUIRE(cudaPeekAtLastError() == result);
  CHECK_THROWS_AS(cuda::check(result, "cudaSetDevice"), Error);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
}

TEST_CASE("cuda runtime: want of memory is OutOfMemory") {
  CHECK_THROWS_AS(cuda::check(cudaErrorMemoryAllocation, "kernel launch"), OutOfMemory);
}

TEST_CASE("cuda cudnn: engines that lose digits or differ from run to run break the rules") {
  const auto keeps = [](cudnnBackendNumericalNote_t note, DType dtype, bool tf32) {
    return keeps_rules({CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP, note}, dtype, {.tf32 = tf32});
  };
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    for (const bool tf32 : {false, true}) {
      CHECK(keeps_rules({}, dtype, {.tf32 = tf32}));
      for (const cudnnBackendNumericalNote_t note :
           {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION,
            CUDNN_NUMERICAL_NOTE_FFT, CUDNN_NUMERICAL_NOTE_WINOGRAD, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4,
            CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13}) {
        CAPTURE(note);
        CHECK_FALSE(keeps(note, dtype, tf32));
      }
      const bool may_lose = dtype != DType::float32 || tf32;
      CHECK(keeps(CUDNN_NUMERICAL_NOTE_TENSOR_CORE, dtype, tf32) == may_lose);
      CHECK(keeps(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS, dtype, tf32) == may_lose);
    }
  }
}
