#include "core/emulated/launch.h"
#include "core/kernels.h"
#include "core/strided_loop.h"
#include "cuda_devices.h"
#include "launch_checks_guard.h"
#include "ops/conv/kernels.h"
#include "ops/map_norm/kernels.h"
#include "ops/norm/layout.h"
#include "ops/norm_table.h"
#include "ops/pointwise/kernels.h"
#include "ops/reduce/kernels.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

// Kernels on tensors of more than 2^32 elements, or of more than 2^23 rows: the last images have the results that they
// have alone. The device has a million multiprocessors, so that each block has one step of its loop, and only the
// blocks at both ends of a launch run; the rest of the memory is never touched. The virtual GPU is told so by the
// environment (tests/CMakeLists.txt); a GPU runs all. The CPU goes over a tensor whose pages are the same ones
// repeated.

using namespace norma;
using namespace norma::test;

namespace {

using Bytes = std::vector<std::byte>;

/// Bytes that begin, and end, with those of `pattern`. On the CPU they are repetitions of it, in the same pages.
class LargeMemory : NotCopied {
 public:
  LargeMemory(Device device, int64_t bytes, const Bytes& pattern)
      : device_(device), bytes_(bytes), period_(static_cast<int64_t>(pattern.size())) {
    const bool repeats = device.type == DeviceType::cpu && period_ % 4096 == 0;
    data_ = device.type == DeviceType::cuda
                ? static_cast<std::byte*>(allocator(device).allocate(static_cast<size_t>(bytes)))
                : map(nullptr, bytes + period_, -1);  // whole periods
    if (repeats) {
      const int file = ::memfd_create("norma_large_test", 0);
      REQUIRE(::ftruncate(file, period_) == 0);
      for (int64_t at = 0; at < bytes; at += period_) {
        map(data_ + at, period_, file);
      }
      ::close(file);
    }
    for (const int64_t at : {int64_t{0}, repeats ? 0 : std::max<int64_t>(bytes - period_, 0)}) {
      const auto count = static_cast<size_t>(std::min(bytes, period_));
      device_functions.table("large", device).from_host(data_ + at, pattern.data(), count);
    }
  }
  ~LargeMemory() {
    if (device_.type == DeviceType::cuda) {
      allocator(device_).deallocate(data_);
    } else {
      ::munmap(data_, static_cast<size_t>(bytes_ + period_));
    }
  }

  [[nodiscard]] void* data() const { return data_; }
  [[nodiscard]] Bytes last(int64_t bytes) const {
    Bytes result(static_cast<size_t>(bytes));
    device_functions.table("large", device_).to_host(result.data(), data_ + bytes_ - bytes, result.size());
    return result;
  }

 private:
  static std::byte* map(std::byte* at, int64_t bytes, int file) {
    const int how =
        (file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED) | (at == nullptr ? 0 : MAP_FIXED);
    void* const pages = ::mmap(at, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, how, file, 0);
    REQUIRE(pages != MAP_FAILED);
    return static_cast<std::byte*>(pages);
  }

  Device device_;
  int64_t bytes_;
  int64_t period_;
  std::byte* data_ = nullptr;
};

Bytes raw_bytes(const Tensor& x) {
  const auto* begin = static_cast<const std::byte*>(x.raw_data());
  return {begin, begin + x.numel() * static_cast<int64_t>(size_of(x.dtype()))};
}

/// A call: x and dy have `elements` of 16 bits for each image, y and dx `of_result`.
struct LargeCall {
  Device device;
  int64_t images;
  void *x, *dy, *y, *dx;
};

/// An op that takes each image for itself.
struct LargeCase {
  std::string name;
  int64_t elements;
  int64_t of_result;
  size_t results;  ///< 1: y; 2: y and dx
  std::function<void(const LargeCall&)> run;
  int64_t chunk = 2;  ///< images that are compared
  DType dtype = DType::bfloat16;
  int64_t images = 0;  ///< 0: as many as have 2^32 elements, and a chunk
};

/// y and dx of the last images. patterns: of x and dy.
std::array<Bytes, 2> last_of(const LargeCase& c, Device device, int64_t images, const std::array<Bytes, 2>& patterns) {
  const Bytes nothing(patterns[0].size() / static_cast<size_t>(c.elements) * static_cast<size_t>(c.of_result));
  const LargeMemory x(device, images * c.elements * 2, patterns[0]);
  const LargeMemory dy(device, images * c.elements * 2, patterns[1]);
  const LargeMemory y(device, images * c.of_result * 2, nothing);
  const LargeMemory dx(device, images * c.of_result * 2, nothing);
  c.run({device, images, x.data(), dy.data(), y.data(), dx.data()});
  return {y.last(c.chunk * c.of_result * 2), dx.last(c.chunk * c.of_result * 2)};
}

void check_last_images(const LargeCase& c, Device device, int64_t pattern_elements) {
  const int64_t images = c.images != 0 ? c.images : (int64_t{1} << 32) / c.elements + c.chunk;
  int64_t period = pattern_elements / c.elements;
  period -= period > 4096 ? period % 4096 : 0;  // whole pages
  const int64_t last = device.type == DeviceType::cpu ? (images - 1) % period + 1 : period;
  std::array<Bytes, 2> patterns;
  std::array<Bytes, 2> chunks;
  for (size_t i = 0; i < 2; ++i) {
    patterns[i] = raw_bytes(to(random_tensor({period * c.elements}, static_cast<int64_t>(i) + 1), c.dtype));
    const auto end = patterns[i].begin() + last * c.elements * 2;
    chunks[i].assign(end - c.chunk * c.elements * 2, end);
  }
  const auto found = last_of(c, device, images, patterns);
  const auto expected = last_of(c, device, c.chunk, chunks);
  for (size_t i = 0; i < c.results; ++i) {
    CHECK_MESSAGE(found[i] == expected[i], c.name, ", result ", i);
    CHECK_MESSAGE(found[i] != Bytes(found[i].size()), c.name, ", result ", i);
  }
}

LargeCase norm_case(const std::string& name, const Sizes& image, const NormSpec& spec, bool channels_last,
                    bool fixed_stats = false, DType dtype = DType::bfloat16) {
  const auto run = [=](const LargeCall& call) {
    Sizes sizes{call.images};
    for (const int64_t size : image) {
      sizes.push_back(size);
    }
    const Strides strides = channels_last ? channels_last_strides(sizes) : contiguous_strides(sizes);
    const norm_detail::NormLayout layout(sizes, strides, spec, /* affine= */ true);
    kernels::NormProblem problem{.walk = layout.walk(), .shape = layout.shape(), .affine = layout.affine()};
    problem.eps = spec.eps;
    problem.fixed_stats = fixed_stats;
    const auto parameter = [&](int64_t seed) {
      const Tensor numbers = to(random_tensor({sizes[spec.affine[0]]}, seed), DType::float32);
      return to_device(layout.weight_in_order(numbers), call.device);
    };
    const Tensor weight = parameter(8);
    const Tensor bias = parameter(9);
    // Fixed ones are a mean, its low part and 1 / deviation of each channel.
    const int64_t count = kernels::kStatsRows * problem.shape.sets();
    const Bytes fixed = raw_bytes(to(random_tensor({fixed_stats ? count : 1}, 7), DType::float32));
    const LargeMemory stats(call.device, count * 4, fixed);
    const auto kernels = kernels::norm_kernels.at("large", call.device);
    kernels::NormPointers of{.x = call.x, .weight = weight.device_pointer(), .bias = bias.device_pointer()};
    of.stats = stats.data();
    of.y = call.y;
    kernels->forward(dtype, problem, of);
    of.dy = call.dy;
    of.dx = call.dx;
    kernels->backward(dtype, problem, of);
    synchronize(call.device);
  };
  return {
      .name = name, .elements = image.numel(), .of_result = image.numel(), .results = 2, .run = run, .dtype = dtype};
}

std::vector<LargeCase> norm_cases() {
  std::vector<LargeCase> all;
  for (const bool last : {false, true}) {
    const std::string format = last ? ", channels_last" : "";
    const Sizes image{64, 8, 8};
    all.push_back(norm_case("layer2d" + format, image, {.reduce = {1}, .affine = {1}}, last));
    all.push_back(norm_case("instance" + format, image, {.reduce = {2, 3}, .affine = {1}}, last));
    all.push_back(norm_case("group" + format, image, {.reduce = {1, 2, 3}, .affine = {1}, .groups = 4}, last));
    all.push_back(norm_case("batch" + format, image, {.reduce = {0, 2, 3}, .affine = {1}}, last, /* fixed= */ true));
  }
  return all;
}

/// Long rows, and more rows than 2^23.
std::vector<LargeCase> row_cases() {
  const NormSpec rows{.reduce = {1}, .affine = {1}};
  LargeCase wide = norm_case("rows of 1024", {1024}, rows, false, false, DType::float16);
  LargeCase many = norm_case("more than 2^23 rows", {3}, rows, false);
  wide.chunk = many.chunk = 16;
  many.images = (int64_t{1} << 23) + many.chunk;
  return {wide, many};
}

constexpr int64_t kSide = 64;
constexpr int64_t kElements = kSide * kSide;

std::string with_format(const std::string& name, bool channels_last) {
  return name + (channels_last ? ", channels_last" : "");
}

/// DyT, forward and backward.
LargeCase map_case(bool channels_last) {
  return {with_format("dyt", channels_last), kElements, kElements, 2, [=](const LargeCall& call) {
            const kernels::MapProblem problem{kernels::MapFunction::tanh, {call.images, kSide, kSide, channels_last}};
            const Tensor parameters = to_device(random_tensor({1 + 2 * kSide}, 7), call.device);
            const auto* first = parameters.device_pointer<double>();
            const LargeMemory numbers(call.device, 3 * problem.shape.maps() * 4, Bytes(4));
            const LargeMemory sums(call.device, 3 * problem.shape.maps() * 8, Bytes(8));
            const auto kernels = kernels::map_norm_kernels.at("large", call.device);
            const kernels::MapSources sources{.parameters = {first, first + 1, first + 1 + kSide}};
            kernels->numbers(DType::bfloat16, problem, sources, numbers.data());
            kernels::MapArrays arrays{.x = call.x, .numbers = numbers.data(), .result = call.y};
            kernels->forward(DType::bfloat16, problem, arrays);
            arrays.dy = call.dy;
            arrays.sums = static_cast<double*>(sums.data());
            arrays.result = call.dx;
            kernels->sums(DType::bfloat16, problem, arrays);
            synchronize(call.device);
          }};
}
/// A depthwise convolution, forward and backward.
LargeCase depthwise_case(bool channels_last) {
  return {with_format("depthwise", channels_last), kElements, kElements, 2, [=](const LargeCall& call) {
            kernels::Conv2dCase conv{.dtype = DType::bfloat16, .channels_last = channels_last, .groups = kSide};
            conv.n = call.images;
            conv.c = conv.o = kSide;
            conv.h = conv.w = conv.oh = conv.ow = 8;
            conv.kh = conv.kw = 3;
            conv.padding_h = conv.padding_w = 1;
            const Tensor weight = to_device(to(random_tensor({kSide, 9}, 7), DType::bfloat16), call.device);
            const auto kernels = kernels::conv_kernels.at("large", call.device);
            kernels->implementations().force("depthwise");
            const auto& own = kernels->choose(conv, kernels::Conv2dPass::forward);
            kernels->implementations().force("");
            own.forward(conv, call.x, weight.device_pointer(), nullptr, call.y, nullptr);
            own.input_gradient(conv, call.dy, weight.device_pointer(), call.dx);
            synchronize(call.device);
          }};
}

std::vector<LargeCase> other_cases() {
  std::vector<LargeCase> all{map_case(false), map_case(true), depthwise_case(false), depthwise_case(true)};
  const auto add_case = [&](const std::string& name, int64_t of_result, auto run) {
    all.push_back({name, kElements, of_result, 1, run});
  };
  constexpr DType kDType = DType::bfloat16;
  add_case("relu", kElements, [](const LargeCall& call) {
    const Strides dense{kElements, 1};
    kernels::pointwise_kernels.at("large", call.device)
        ->unary(kernels::Unary::relu, kDType, {call.images, kElements}, {call.y, dense}, {call.x, dense}, {});
  });
  for (const DType to_dtype : {kDType, DType::float16}) {
    add_case(to_dtype == kDType ? "a transposed copy" : "a transposed copy to float16", kElements,
             [=](const LargeCall& call) {
               const Sizes sizes{call.images, kSide, kSide};
               const StridedLoop<2> loop{sizes, {Strides{kElements, kSide, 1}, Strides{kElements, 1, kSide}}};
               kernels::tensor_kernels.at("large", call.device)->copy(loop, to_dtype, call.y, kDType, call.x);
             });
  }
  for (const int64_t along : {kSide, int64_t{1}}) {
    add_case(along == 1 ? "sum of rows" : "sum of columns", kSide, [=](const LargeCall& call) {
      const Sizes sizes{call.images, kSide, kSide};
      const kernels::ReduceShape shape{sizes, Strides{kElements, kSide / along, along}, Strides{kSide, 1, 0}};
      kernels::reduce_kernels.at("large", call.device)
          ->fold(kernels::Fold::sum, shape, kDType, call.x, nullptr, call.y, 1);
    });
  }
  return all;
}

}  // namespace

TEST_CASE("large: the last images have the results that they have alone") {
  const DefaultDeviceGuard guard(kCpu);
  const LaunchChecksGuard checks({.resident_blocks = 1 << 20, .processors = 1 << 20, .end_blocks = 64});
  for (const Device device : cuda_devices()) {
    for (const std::vector<LargeCase>& cases : {row_cases(), norm_cases(), other_cases()}) {
      for (const LargeCase& c : cases) {
        check_last_images(c, device, int64_t{1} << 19);
      }
    }
  }
}

TEST_CASE("large: rows on the CPU" * doctest::test_suite("slow")) {
  const DefaultDeviceGuard guard(kCpu);
  for (const LargeCase& c : row_cases()) {
    check_last_images(c, kCpu, int64_t{1} << 22);
  }
}
