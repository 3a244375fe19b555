#include "core/copy.h"
#include "core/cuda/runtime.h"
#include "core/factory.h"
#include "core/tape.h"
#include "ops/norm/norm.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

// norm_cuda: GB/s of each norm's kernels on the GPU beside a device copy of the same bytes, as CSV. Between two
// repetitions something larger than the L2 cache is written, so that x comes from memory. Times are those of CUDA's
// events, medians of kRepetitions.

namespace {

using namespace norma;

constexpr int kRepetitions = 15;
constexpr int64_t kFlushBytes = int64_t{256} << 20;
const Device kGpu = device_from_string("cuda");

/// Seconds of f(), with a cold L2 cache.
double seconds_of(const Tensor& flush, const std::function<void()>& f) {
  cuda::Event start;
  cuda::Event end;
  std::vector<double> seconds;
  for (int i = 0; i < kRepetitions + 2; ++i) {
    fill_(flush, static_cast<double>(i));
    start.record(cuda::current_stream());
    f();
    end.record(cuda::current_stream());
    if (i >= 2) {
      seconds.push_back(end.seconds_since(start));
    }
  }
  std::nth_element(seconds.begin(), seconds.begin() + kRepetitions / 2, seconds.end());
  return seconds[kRepetitions / 2];
}

struct Norm {
  std::string name;
  NormSpec spec;
};

void measure(const Sizes& sizes, const Norm& norm, DType dtype, MemoryFormat format, const Tensor& flush) {
  const TensorOptions options{.dtype = DType::float32, .device = kGpu};
  const Tensor x = copy_of(randn(sizes, options), format, dtype).set_requires_grad();
  const Tensor dy = copy_of(randn(sizes, options), format, dtype);
  const Tensor weight = rand({sizes[1]}, options).set_requires_grad();
  const Tensor bias = rand({sizes[1]}, options).set_requires_grad();
  const Tensor copied = empty_like(dy);
  const double bytes = static_cast<double>(x.numel()) * static_cast<double>(size_of(dtype));
  const double copy = seconds_of(flush, [&] { copy_into(dy, copied); });
  const double forward =
      seconds_of(flush, [&] { (void)normalize(x.detach(), norm.spec, weight.detach(), bias.detach()); });
  // Backward alone: forward stands before the first event.
  Tensor y = normalize(x, norm.spec, weight, bias);
  const double backward = seconds_of(flush, [&] { (void)grad({y}, {x, weight, bias}, {dy}, {.retain_graph = true}); });
  const double copy_rate = 2 * bytes / copy;
  for (const bool is_backward : {false, true}) {
    const double seconds = is_backward ? backward : forward;
    const double rate = (is_backward ? 3 : 2) * bytes / seconds;
    fmt::print("{},{}x{}x{}x{},{},{},{},{:.2f},{:.0f},{:.0f},{:.3f}\n", norm.name, sizes[0], sizes[1], sizes[2],
               sizes[3], to_string(dtype), to_string(format), is_backward ? "backward" : "forward", seconds * 1e6,
               rate / 1e9, copy_rate / 1e9, rate / copy_rate);
  }
  std::fflush(stdout);
}

int run() {
  check_available("norm_cuda", kGpu);
  const Tensor flush = zeros({kFlushBytes / 4}, {.dtype = DType::float32, .device = kGpu});
  const Norm kNorms[] = {{"batch", {.reduce = {0, 2, 3}, .affine = {1}}},
                         {"layer2d", {.reduce = {1}, .affine = {1}, .eps = 1e-6}},
                         {"group:32", {.reduce = {1, 2, 3}, .affine = {1}, .groups = 32}}};
  const Sizes kShapes[] = {{64, 256, 56, 56}, {64, 512, 28, 28}, {64, 2048, 7, 7}, {64, 96, 56, 56},
                           {64, 192, 28, 28}, {64, 384, 14, 14}, {64, 768, 7, 7},  {256, 64, 112, 112}};
  fmt::print("norm,shape,dtype,format,pass,microseconds,GB/s,copy GB/s,share\n");
  for (const DType dtype : {DType::bfloat16, DType::float32}) {
    for (const MemoryFormat format : {MemoryFormat::channels_last, MemoryFormat::contiguous}) {
      for (const Norm& norm : kNorms) {
        for (const Sizes& sizes : kShapes) {
          measure(sizes, norm, dtype, format, flush);
        }
      }
    }
  }
  return 0;
}

}  // namespace

int main() {
  try {
    return run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "norm_cuda: %s\n", error.what());
    return 2;
  }
}
