#include "ops/cuda_results.h"
#include "ops/optimizer/optimizer.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/view.h"

#include <vector>

// CUDA's kernels of the optimizers beside the CPU's. Nothing but the sum of squares adds up elements, so all others
// have the CPU's bits.

using namespace norma;
using namespace norma::test;

namespace {

// Around the elements of a vector and of a piece of a sum, and more than one block.
constexpr int64_t kCounts[] = {0, 1, 3, 4, 5, 31, 33, 255, 4095, 4096, 4097, 12'293};

/// `count` numbers, `shift` elements from where memory is aligned.
Tensor shifted(const Tensor& numbers, int64_t shift, Device device) {
  const int64_t count = numbers.numel();
  const Tensor memory = full({count + shift + 1}, 77, {.dtype = numbers.dtype(), .device = device});
  const Tensor x = narrow(memory, 0, shift, count).detach();
  copy_into(to_device(numbers, device), x);
  return x;
}

/// The numbers of x's memory, those around it included.
std::vector<double> memory_of(const Tensor& x) {
  const int64_t count = x.offset() + x.numel() + 1;
  return to_device(alias(x, {count}, {1}, 0).detach(), kCpu).to_vector<double>();
}

/// What a change makes of four operands.
template <class F>
std::vector<std::vector<double>> changed(F&& change, DType dtype, int64_t count, int64_t shift, Device device) {
  Tensors operands;
  for (uint64_t i = 0; i < 4; ++i) {
    Tensor numbers = copy_of(random_tensor({count}, 1 + i), MemoryFormat::contiguous, dtype);
    if (i == 3) {  // square averages are not negative
      numbers = copy_of(random_tensor({count}, 1 + i), MemoryFormat::contiguous, DType::float64);
      change_elements<double>(numbers, [&](double* elements) {
        for (int64_t k = 0; k < count; ++k) {
          elements[k] = elements[k] * elements[k];
        }
      });
      numbers = copy_of(numbers, MemoryFormat::contiguous, dtype);
    }
    operands.push_back(shifted(numbers, shift, device));
  }
  change(operands);
  std::vector<std::vector<double>> all;
  for (const Tensor& operand : operands) {
    all.push_back(memory_of(operand));
  }
  return all;
}

/// Compared bit by bit.
template <class F>
void check_change(const char* name, F&& change, DType dtype) {
  const DefaultDeviceGuard guard(kCpu);
  for (const int64_t count : kCounts) {
    for (const int64_t shift : {0, 1, 3}) {
      const auto expected = changed(change, dtype, count, shift, kCpu);
      for (const Device device : cuda_devices()) {
        CHECK_MESSAGE(changed(change, dtype, count, shift, device) == expected, name, " ", to_string(dtype), " count ",
                      count, " shift ", shift);
      }
    }
  }
}

}  // namespace

TEST_CASE("cuda optimizer: steps have the CPU's bits, aligned or not, and change nothing around") {
  for (const DType dtype : {DType::float32, DType::float64}) {
    check_change(
        "sgd",
        [](Tensors& of) {
          sgd_step({{of[0], of[1], Tensor(), Tensor(), {.rate = 0.1, .weight_decay = 0.01}}});
        },
        dtype);
    check_change(
        "sgd with momentum",
        [](Tensors& of) {
          sgd_step({{of[0],
                     of[1],
                     of[2],
                     Tensor(),
                     {.rate = 0.1, .weight_decay = 0.01, .momentum = 0.9, .share = 0.8, .own = 0.3, .along = 0.7}}});
        },
        dtype);
    check_change(
        "adamw",
        [](Tensors& of) {
          adamw_step({{of[0],
                       of[1],
                       of[2],
                       of[3],
                       {.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-3, .shrink = 0.999, .step_size = 0.02, .scale = 1.25}}});
        },
        dtype);
  }
}

TEST_CASE("cuda optimizer: numbers are scaled and cut off in every floating dtype") {
  for (const DType dtype : {DType::float32, DType::float64, DType::float16, DType::bfloat16}) {
    check_change(
        "scale",
        [](Tensors& of) {
          scale_in_place("scale", {of[0]}, full({}, 0.7, {.dtype = DType::float64, .device = of[0].device()}));
        },
        dtype);
    check_change(
        "cut_off", [](Tensors& of) { cut_off_in_place("cut off", {of[0]}, 0.6); }, dtype);
  }
}

TEST_CASE(
    "cuda optimizer: a list of tensors of all sizes, alignments and dtypes has the bits of its tensors one by one") {
  const DefaultDeviceGuard guard(kCpu);
  const auto tensors_on = [](Device device) {
    Tensors all;
    uint64_t seed = 1;
    for (const DType dtype : {DType::float32, DType::float64}) {
      for (const int64_t count : kCounts) {
        for (int k = 0; k < 3; ++k) {
          const Tensor numbers = copy_of(random_tensor({count}, seed++), MemoryFormat::contiguous, dtype);
          all.push_back(shifted(numbers, count % 3 == 0 ? 1 : 0, device));
        }
      }
    }
    return all;
  };
  const auto step_of = [](size_t i) {
    return kernels::SgdStep{.rate = 0.1 + 0.01 * static_cast<double>(i), .momentum = 0.9, .share = 0.8, .own = 0.5};
  };
  for (const Device device : cuda_devices()) {
    const Tensors together = tensors_on(device);
    const Tensors apart = tensors_on(kCpu);
    std::vector<SgdUpdate> updates;
    for (size_t i = 0; i < together.size(); i += 3) {
      updates.push_back({together[i], together[i + 1], together[i + 2], {}, step_of(i)});
      sgd_step({{apart[i], apart[i + 1], apart[i + 2], {}, step_of(i)}});
      cut_off_in_place("cut off", {apart[i + 1]}, 0.6);
      scale_in_place("scale", {apart[i + 2]}, full({}, 0.7, {.dtype = DType::float64}));
    }
    sgd_step(updates);
    Tensors gradients;
    Tensors velocities;
    for (const SgdUpdate& update : updates) {
      gradients.push_back(update.gradient);
      velocities.push_back(update.average);
    }
    cut_off_in_place("cut off", gradients, 0.6);
    scale_in_place("scale", velocities, full({}, 0.7, {.dtype = DType::float64, .device = device}));
    for (size_t i = 0; i < together.size(); ++i) {
      CAPTURE(i);
      CHECK(memory_of(together[i]) == memory_of(apart[i]));
    }
    const std::vector<double> sums = sums_of_squares(together, device).to_vector<double>();
    for (size_t i = 0; i < together.size(); ++i) {
      CAPTURE(i);
      CHECK(sums[i] == sums_of_squares({together[i]}, device).to_vector<double>()[0]);
    }
    CHECK(sums_of_squares({}, device).numel() == 0);
    sgd_step({});
  }
}

TEST_CASE("cuda optimizer: what gradients are clipped by") {
  const DefaultDeviceGuard guard(kCpu);
  for (const int64_t count : {1, 33, 1025}) {
    const Tensor sums = abs(random_tensor({count}, 1));
    for (const double max_norm : {0.1, 1e3}) {
      const std::vector<double> expected = clipping_of(sums, max_norm).to_vector<double>();
      CHECK(expected[1] == (max_norm < 1 ? max_norm / (expected[0] + 1e-6) : 1));
      for (const Device device : cuda_devices()) {
        const std::vector<double> found = clipping_of(to_device(sums, device), max_norm).to_vector<double>();
        CHECK(std::abs(found[0] - expected[0]) <= 1e-14 * expected[0]);
        CHECK(std::abs(found[1] - expected[1]) <= 1e-14 * expected[1]);
      }
    }
  }
  const Tensor none = from_vector<double>({NAN, 1}, {2});
  for (const Device device : cuda_devices()) {
    const std::vector<double> found = clipping_of(to_device(none, device), 1).to_vector<double>();
    CHECK(std::isnan(found[0]));
    CHECK(found[1] == 1);
  }
}

TEST_CASE("cuda optimizer: NaN and infinities when numbers are cut off") {
  const DefaultDeviceGuard guard(kCpu);
  for (const Device device : cuda_devices()) {
    const Tensor x = to_device(from_vector<double>({NAN, INFINITY, -INFINITY, 0.5, -0.5}, {5}), device);
    cut_off_in_place("cut off", {x}, 2);
    const std::vector<double> cut = to_device(x, kCpu).to_vector<double>();
    CHECK(std::isnan(cut[0]));
    CHECK(std::vector<double>(cut.begin() + 1, cut.end()) == std::vector<double>{2, -2, 0.5, -0.5});
  }
}

TEST_CASE("cuda optimizer: sums of squares, in one piece and in several") {
  const DefaultDeviceGuard guard(kCpu);
  for (const DType dtype : {DType::float32, DType::float64, DType::float16, DType::bfloat16}) {
    for (const int64_t count : {0, 1, 33, 4096, 4097, 70'001}) {
      const Tensor x = copy_of(random_tensor({count}, 1), MemoryFormat::contiguous, dtype);
      double expected = 0;
      for (const double value : x.to_vector<double>()) {
        expected += value * value;
      }
      for (const Device device : cuda_devices()) {
        const double sum = to_device(sums_of_squares({to_device(x, device)}, device), kCpu).to_vector<double>()[0];
        CHECK_MESSAGE(std::abs(sum - expected) <= 1e-13 * expected, to_string(dtype), " count ", count);
      }
    }
  }
  check_any_order("sum of squares", [&](Device device) -> Tensors {
    return {sums_of_squares({to_device(random_tensor({20'001}, 1), device)}, device)};
  });
}
