#include "ops/matmul/matmul.h"

#include "core/op_profile.h"
#include "core/parallel.h"
#include "core/tape.h"
#include "cuda_devices.h"
#include "error_text.h"
#include "ops/device_with.h"
#include "ops/matmul/kernels.h"
#include "ops/shape/copy.h"
#include "ops/shape/view.h"

#include <string>

namespace norma::test {
namespace {

/// Forces an implementation for the length of a scope.
struct Forced {
  explicit Forced(const std::string& name) { set_matmul_implementation(name); }
  ~Forced() { set_matmul_implementation(""); }
};

/// The product of two row-major matrices by plain loops.
std::vector<double> plain_product(const std::vector<double>& a, const std::vector<double>& b, int64_t m, int64_t k,
                                  int64_t n) {
  std::vector<double> c(static_cast<size_t>(m * n), 0.0);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t l = 0; l < k; ++l) {
        c[static_cast<size_t>(i * n + j)] += a[static_cast<size_t>(i * k + l)] * b[static_cast<size_t>(l * n + j)];
      }
    }
  }
  return c;
}

Tensor reference(const Tensor& a, const Tensor& b) {
  return from_vector(plain_product(a.to_vector<double>(), b.to_vector<double>(), a.size(0), a.size(1), b.size(1)),
                     {a.size(0), b.size(1)});
}

/// x's values with the last two axes exchanged in memory.
Tensor transposed_in_memory(const Tensor& x) {
  return transpose(copy_of(transpose(x, -2, -1), MemoryFormat::contiguous), -2, -1);
}

TensorFunction matmul_function() {
  return [](const Tensors& in) -> Tensors { return {matmul(in[0], in[1])}; };
}
TensorFunction linear_function() {
  return [](const Tensors& in) -> Tensors { return {linear(in[0], in[1], in.size() > 2 ? in[2] : Tensor())}; };
}

}  // namespace

TEST_CASE("matmul: every implementation, size and order against plain loops") {
  // The last three are large enough for oneDNN to be given b packed (many rows; short sums) or the product transposed.
  const std::vector<Sizes> shapes = {{1, 1, 1},        {1, 33, 7},      {31, 1, 32},    {33, 31, 1},  {31, 32, 33},
                                     {129, 65, 3},     {5, 130, 260},   {257, 40, 17},  {2, 4096, 3}, {64, 300, 64},
                                     {1030, 130, 129}, {130, 500, 270}, {100, 600, 290}};
  for (const std::string& name : matmul_implementations()) {
    const Forced forced(name);
    for (const Sizes& s : shapes) {
      for (const DType dtype : {DType::float32, DType::float64}) {
        const Tensor a = random_tensor({s[0], s[1]}, 1, DType::float32);
        const Tensor b = random_tensor({s[1], s[2]}, 2, DType::float32);
        const Tensor expected = reference(a, b);
        const Tensor a_in = copy_of(a, MemoryFormat::contiguous, dtype);
        const Tensor b_in = copy_of(b, MemoryFormat::contiguous, dtype);
        // Sums of up to 4096 products (their sum up to 300): some roundings of it.
        const double tolerance = dtype == DType::float32 ? 1e-3 : 1e-11;
        CAPTURE(name);
        CAPTURE(norma::to_string(s));
        CHECK(max_difference(matmul(a_in, b_in), expected) <= tolerance);
        CHECK(max_difference(matmul(transposed_in_memory(a_in), b_in), expected) <= tolerance);
        CHECK(max_difference(matmul(a_in, transposed_in_memory(b_in)), expected) <= tolerance);
        CHECK(max_difference(matmul(transposed_in_memory(a_in), transposed_in_memory(b_in)), expected) <= tolerance);
        CHECK(max_difference(matmul(in_layout(a_in, Layout::strided), in_layout(b_in, Layout::strided)), expected) <=
              tolerance);
      }
    }
  }
}

TEST_CASE("matmul: 16-bit operands of a wide product give float32, in every implementation and order") {
  const DefaultDeviceGuard guard(kCpu);
  for (const std::string& name : matmul_implementations()) {
    const Forced forced(name);
    for (const Sizes& s : std::vector<Sizes>{{3, 5, 7}, {65, 64, 65}, {1030, 130, 129}, {100, 600, 290}}) {
      for (const DType dtype : {DType::bfloat16, DType::float16}) {
        const Tensor a = copy_of(random_tensor({s[0], s[1]}, 1, DType::float32), MemoryFormat::contiguous, dtype);
        const Tensor b = copy_of(random_tensor({s[1], s[2]}, 2, DType::float32), MemoryFormat::contiguous, dtype);
        const Tensor expected = reference(a, b);
        for (const Tensor& left : {a, transposed_in_memory(a)}) {
          const Tensor c = empty({s[0], s[2]});
          const kernels::MatmulCase product{.dtype = dtype,
                                            .m = s[0],
                                            .n = s[2],
                                            .k = s[1],
                                            .a_row = left.stride(0),
                                            .a_column = left.stride(1),
                                            .b_row = s[2],
                                            .b_column = 1,
                                            .c_row = s[2],
                                            .wide = true};
          kernels::matmul_cpu.choose(product).multiply(product, left.raw_data(), b.raw_data(), nullptr, c.raw_data(),
                                                       nullptr);
          CAPTURE(name);
          CAPTURE(norma::to_string(s));
          CHECK(max_difference(c, expected) <= 1e-3);  // of sums up to 100, 16 bits would lose 0.03 and more
        }
      }
    }
  }
}

TEST_CASE("matmul: a wide product of several matrices, with b in columns and gaps in c") {
  const DefaultDeviceGuard guard(kCpu);
  constexpr int64_t kBatch = 3, kM = 65, kN = 33, kK = 64, kRow = 48;
  const DType dtype = DType::bfloat16;
  const Tensor a = copy_of(random_tensor({kBatch, kM, kK}, 1, DType::float32), MemoryFormat::contiguous, dtype);
  const Tensor b = copy_of(random_tensor({kBatch, kN, kK}, 2, DType::float32), MemoryFormat::contiguous, dtype);
  for (const std::string& name : matmul_implementations()) {
    const Forced forced(name);
    const Tensor c = full({kBatch, kM, kRow}, 7);
    const kernels::MatmulCase product{.dtype = dtype,
                                      .batch = kBatch,
                                      .m = kM,
                                      .n = kN,
                                      .k = kK,
                                      .a_batch = kM * kK,
                                      .a_row = kK,
                                      .a_column = 1,
                                      .b_batch = kN * kK,
                                      .b_row = 1,
                                      .b_column = kK,
                                      .c_batch = kM * kRow,
                                      .c_row = kRow,
                                      .wide = true};
    kernels::matmul_cpu.choose(product).multiply(product, a.raw_data(), b.raw_data(), nullptr, c.raw_data(), nullptr);
    for (int64_t i = 0; i < kBatch; ++i) {
      const Tensor expected = reference(select(a, 0, i), transpose(select(b, 0, i), 0, 1));
      CHECK(max_difference(narrow(select(c, 0, i), 1, 0, kN), expected) <= 1e-4);
    }
    CHECK(max_difference(narrow(c, 2, kN, kRow - kN), full({kBatch, kM, kRow - kN}, 7)) == 0);
  }
}

TEST_CASE("matmul: rows and columns cut out of larger matrices, and repeated rows") {
  const Tensor big = random_tensor({40, 50}, 1, DType::float32);
  const Tensor b = random_tensor({33, 20}, 2, DType::float32);
  for (const std::string& name : matmul_implementations()) {
    const Forced forced(name);
    const Tensor part = narrow(narrow(big, 0, 3, 31), 1, 7, 33);
    CHECK(max_difference(matmul(part, b), reference(part, b)) <= 1e-4);
    CHECK(max_difference(matmul(transpose(b, 0, 1), transpose(part, 0, 1)),
                         reference(transpose(b, 0, 1), transpose(part, 0, 1))) <= 1e-4);
    const Tensor repeated = expand(narrow(narrow(big, 0, 0, 1), 1, 0, 33), {31, 33});
    CHECK(max_difference(matmul(repeated, b), reference(repeated, b)) <= 1e-4);
  }
}

TEST_CASE("matmul: leading axes broadcast") {
  const Tensor a = random_tensor({3, 1, 4, 5}, 1, DType::float32);
  const Tensor b = random_tensor({2, 5, 6}, 2, DType::float32);
  for (const std::string& name : matmul_implementations()) {
    const Forced forced(name);
    const Tensor y = matmul(a, b);
    CHECK(y.sizes() == Sizes{3, 2, 4, 6});
    for (int64_t i = 0; i < 3; ++i) {
      for (int64_t j = 0; j < 2; ++j) {
        CHECK(max_difference(select(select(y, 0, i), 0, j),
                             reference(select(select(a, 0, i), 0, 0), select(b, 0, j))) <= 1e-5);
      }
    }
    const Tensor folded = matmul(reshape(a, {3, 4, 5}), select(b, 0, 1));
    CHECK(max_difference(select(folded, 0, 2), reference(select(select(a, 0, 2), 0, 0), select(b, 0, 1))) <= 1e-5);
    const Tensor left = matmul(select(select(a, 0, 0), 0, 0), b);
    CHECK(max_difference(select(left, 0, 1), reference(select(select(a, 0, 0), 0, 0), select(b, 0, 1))) <= 1e-5);
  }
}

// A = torch.arange(6.).reshape(2, 3) - 2; u = torch.tensor([1., -1, 2]); w = torch.tensor([3., -2])
// A @ u, w @ A, u @ u, (torch.zeros(4, 2, 3) @ u).shape, (u @ torch.zeros(4, 3, 2)).shape   (torch 2.15)
TEST_CASE("matmul: vectors are a row on the left and a column on the right, as in PyTorch") {
  const Tensor a = from_vector<float>({-2, -1, 0, 1, 2, 3}, {2, 3});
  const Tensor u = from_vector<float>({1, -1, 2}, {3});
  const Tensor w = from_vector<float>({3, -2}, {2});
  for (const std::string& name : matmul_implementations()) {
    const Forced forced(name);
    CHECK(matmul(a, u).sizes() == Sizes{2});
    CHECK(matmul(a, u).to_vector<float>() == std::vector<float>{-1, 5});
    CHECK(matmul(w, a).sizes() == Sizes{3});
    CHECK(matmul(w, a).to_vector<float>() == std::vector<float>{-8, -7, -6});
    CHECK(matmul(u, u).sizes() == Sizes{});
    CHECK(matmul(u, u).item<float>() == 6);
    CHECK(matmul(zeros({4, 2, 3}), u).sizes() == Sizes{4, 2});
    CHECK(matmul(u, zeros({4, 3, 2})).sizes() == Sizes{4, 2});
    CHECK(matmul(u, zeros({5, 4, 3, 2})).sizes() == Sizes{5, 4, 2});
    CHECK(matmul(zeros({0}), zeros({0})).item<float>() == 0);
    CHECK(matmul(zeros({2, 0}), zeros({0})).to_vector<float>() == std::vector<float>{0, 0});
    // Longer than a vector register, with gaps.
    const Tensor big = random_tensor({33, 70}, 1, DType::float32);
    const Tensor gaps = slice(random_tensor({140}, 2, DType::float32), 0, 0, 140, 2);
    CHECK(max_difference(matmul(big, gaps), select(reference(big, unsqueeze(gaps, 1)), 1, 0)) <= 1e-4);
    CHECK(max_difference(matmul(gaps, transpose(big, 0, 1)), select(reference(big, unsqueeze(gaps, 1)), 1, 0)) <= 1e-4);
  }
  for (const DType dtype : {DType::float16, DType::bfloat16, DType::float64}) {
    CHECK(matmul(copy_of(a, MemoryFormat::contiguous, dtype), copy_of(u, MemoryFormat::contiguous, dtype))
              .to_vector<float>() == std::vector<float>{-1, 5});
  }
  check_gradients("matrix and vector", matmul_function(), {random_tensor({3, 4}, 1), random_tensor({4}, 2)}, true);
  check_gradients("vector and matrix", matmul_function(), {random_tensor({3}, 1), random_tensor({3, 4}, 2)}, true);
  check_gradients("two vectors", matmul_function(), {random_tensor({5}, 1), random_tensor({5}, 2)}, true);
  check_gradients("batch and vector", matmul_function(), {random_tensor({2, 3, 4}, 1), random_tensor({4}, 2)}, true);
  check_gradients("vector and batch", matmul_function(), {random_tensor({3}, 1), random_tensor({2, 3, 4}, 2)}, true);
}

TEST_CASE("matmul: empty sums and empty results") {
  CHECK(max_difference(matmul(zeros({2, 0}), zeros({0, 3})), zeros({2, 3})) == 0);
  CHECK(matmul(zeros({0, 4}), zeros({4, 3})).sizes() == Sizes{0, 3});
  CHECK(matmul(zeros({0, 2, 4}), zeros({4, 3})).sizes() == Sizes{0, 2, 3});
}

TEST_CASE("matmul: gradients by finite differences, also twice") {
  check_gradients("matrices", matmul_function(), {random_tensor({3, 4}, 1), random_tensor({4, 5}, 2)}, true);
  check_gradients("batch and one matrix", matmul_function(), {random_tensor({2, 3, 4}, 1), random_tensor({4, 2}, 2)},
                  true);
  check_gradients("one matrix and batch", matmul_function(), {random_tensor({3, 4}, 1), random_tensor({2, 4, 2}, 2)});
  check_gradients("broadcast", matmul_function(), {random_tensor({2, 1, 3, 2}, 1), random_tensor({3, 2, 4}, 2)}, true);
}

TEST_CASE("linear: values as PyTorch") {
  // x = (torch.arange(6.) * 5 % 7 - 3).reshape(2, 3); w = (torch.arange(12.) * 3 % 5 - 2).reshape(4, 3)
  // F.linear(x, w, torch.tensor([.5, -1, 2, 0]))      (torch 1.13)
  const Tensor x = from_vector<float>({-3, 2, 0, -2, 3, 1}, {2, 3});
  const Tensor weight = from_vector<float>({-2, 1, -1, 2, 0, -2, 1, -1, 2, 0, -2, 1}, {4, 3});
  const Tensor bias = from_vector<float>({0.5F, -1, 2, 0}, {4});
  const Tensor expected = from_vector<double>({8.5, -7.0, -3.0, -4.0, 6.5, -7.0, -1.0, -5.0}, {2, 4});
  for (const std::string& name : matmul_implementations()) {
    const Forced forced(name);
    CHECK(max_difference(linear(x, weight, bias), expected) == 0);
  }
}

TEST_CASE("linear: every implementation against plain loops, with and without bias, in every layout") {
  const Tensor x = random_tensor({2, 33, 3, 5}, 1, DType::float32);  // channels_last when seen as N, C, H, W
  const Tensor weight = random_tensor({31, 5}, 2, DType::float32);
  const Tensor bias = random_tensor({31}, 3, DType::float32);
  std::vector<double> expected = reference(reshape(x, {-1, 5}), transpose(weight, 0, 1)).to_vector<double>();
  const auto biases = bias.to_vector<double>();
  for (const std::string& name : matmul_implementations()) {
    const Forced forced(name);
    for (const Layout layout : kLayouts) {
      CHECK(max_difference(linear(in_layout(x, layout), in_layout(weight, layout)),
                           from_vector(expected, {2, 33, 3, 31})) <= 1e-5);
    }
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    expected[i] += biases[i % biases.size()];
  }
  for (const std::string& name : matmul_implementations()) {
    const Forced forced(name);
    for (const Layout layout : kLayouts) {
      CHECK(max_difference(linear(in_layout(x, layout), in_layout(weight, layout), in_layout(bias, layout)),
                           from_vector(expected, {2, 33, 3, 31})) <= 1e-5);
    }
  }
  CHECK(linear(random_tensor({5}, 1, DType::float32), weight, bias).sizes() == Sizes{31});
}

TEST_CASE("linear: the NHWC view of a channels_last tensor stays one, and so does its gradient") {
  const Tensor x =
      copy_of(random_tensor({2, 5, 3, 4}, 1, DType::float32), MemoryFormat::channels_last).set_requires_grad();
  const Tensor weight = random_tensor({7, 5}, 2, DType::float32);
  const Tensor y = permute(linear(permute(x, {0, 2, 3, 1}), weight), {0, 3, 1, 2});
  CHECK(y.strides() == channels_last_strides({2, 7, 3, 4}));
  const Tensor dx = grad({y}, {x}, {random_tensor(y.sizes(), 3, DType::float32)})[0];
  CHECK(dx.strides() == channels_last_strides({2, 5, 3, 4}));
  // One pixel: strides alone must keep the format.
  const Tensor pixel = copy_of(random_tensor({2, 5, 1, 1}, 1, DType::float32), MemoryFormat::channels_last);
  const Tensor z = permute(linear(permute(pixel, {0, 2, 3, 1}), weight), {0, 3, 1, 2});
  CHECK(z.suggest_memory_format() == MemoryFormat::channels_last);
  // Rows that lie in another order than their axes: (H, N, C) memory seen as (N, H, C).
  const Tensor swapped = transpose(random_tensor({3, 2, 5}, 1, DType::float32), 0, 1);
  CHECK(linear(swapped, weight).strides() == Strides{7, 14, 1});
}

TEST_CASE("linear: gradients by finite differences, also twice") {
  const Tensor weight = random_tensor({3, 5}, 2);
  const Tensor bias = random_tensor({3}, 3);
  check_gradients("rows", linear_function(), {random_tensor({4, 5}, 1), weight, bias}, true);
  check_gradients("rank 4, no bias", linear_function(), {random_tensor({2, 1, 3, 5}, 1), weight});
  check_gradients("rank 1", linear_function(), {random_tensor({5}, 1), weight, bias}, true);
}

TEST_CASE("linear: float32 gradients of every implementation against float64") {
  const Sizes sizes{3, 33, 17};
  const auto gradients = [&](DType dtype) {
    const auto leaf = [&](const Sizes& s, uint64_t seed) {
      return copy_of(random_tensor(s, seed, DType::float32), MemoryFormat::contiguous, dtype).set_requires_grad();
    };
    const Tensors leaves{leaf(sizes, 1), leaf({40, 17}, 2), leaf({40}, 3)};
    const Tensor y = linear(leaves[0], leaves[1], leaves[2]);
    return grad({y}, leaves, {copy_of(random_tensor(y.sizes(), 4, DType::float32), MemoryFormat::contiguous, dtype)});
  };
  const Tensors expected = gradients(DType::float64);
  for (const std::string& name : matmul_implementations()) {
    const Forced forced(name);
    const Tensors got = gradients(DType::float32);
    for (size_t i = 0; i < expected.size(); ++i) {
      CHECK(max_difference(got[i], expected[i]) <= 1e-4);  // sums of up to 99 products
    }
  }
}

TEST_CASE("linear: reordered weights that inference keeps follow every change of the weight") {
  const NoGradGuard no_grad;
  const Tensor x = random_tensor({49, 300}, 1, DType::float32);
  const Tensor weight = random_tensor({330, 300}, 2, DType::float32).set_requires_grad();
  const Tensor before = linear(x, weight, {});
  CHECK(max_difference(before, reference(x, transpose(weight, 0, 1))) <= 1e-4);
  CHECK(max_difference(linear(x, weight, {}), before) == 0);
  fill_(narrow(weight.detach(), 0, 1, 2), 0.5);
  CHECK(max_difference(linear(x, weight, {}), reference(x, transpose(weight, 0, 1))) <= 1e-3);  // sums of up to 150
  CHECK(differ(linear(x, weight, {}), before, 1));
}

TEST_CASE("matmul: windows that overlap in memory") {
  for (const DType dtype : {DType::float32, DType::float64, DType::bfloat16}) {
    CAPTURE(to_string(dtype));
    const Tensor memory = to(random_tensor({2 * 64 + 64 * 64}, 1), dtype);
    const Tensor windows = alias(memory, {33, 8, 32}, {32, 32, 1}, 0);
    const Tensor hankel = alias(memory, {3, 64, 64}, {64, 1, 64}, 0);
    const auto other = [&](const Sizes& sizes) { return to(random_tensor(sizes, 2), dtype); };
    for (const auto& [a, b] : {std::pair(windows, other({33, 32, 16})),
                               {windows, other({32, 16})},
                               {other({33, 16, 8}), windows},
                               {other({3, 48, 64}), hankel},
                               {hankel, other({64, 48})}}) {
      const Tensor expected = matmul(copy_of(a, MemoryFormat::contiguous), copy_of(b, MemoryFormat::contiguous));
      CHECK(max_difference(matmul(a, b), expected) == 0);
    }
  }
}

TEST_CASE("linear: rows with gaps and columns in other order are read where they lie") {
  const Tensor weight = random_tensor({34, 30}, 2, DType::float32).set_requires_grad();
  for (const Tensor& x : {transpose(random_tensor({30, 20}, 1, DType::float32), 0, 1),
                          narrow(random_tensor({20, 40}, 1, DType::float32), 1, 3, 30)}) {
    const Tensor leaf = x.detach().set_requires_grad();
    OpProfile profile;
    const Tensor y = linear(leaf, weight, {});
    const Tensor dy = random_tensor(y.sizes(), 3, DType::float32);
    const Tensors got = grad({y}, {leaf, weight}, {dy});
    for (const OpRecord& record : profile.records()) {
      CHECK(record.work.op != "copy");
    }
    CHECK(max_difference(y, reference(x, transpose(weight.detach(), 0, 1))) <= 1e-5);
    CHECK(max_difference(got[0], reference(dy, weight.detach())) <= 1e-5);
    CHECK(max_difference(got[1], reference(transpose(dy, 0, 1), x)) <= 1e-5);
  }
}

TEST_CASE("linear: an empty batch gives an empty result and zero gradients") {
  const Tensor weight = random_tensor({3, 5}, 2, DType::float32).set_requires_grad();
  const Tensor y = linear(zeros({0, 5}), weight);
  CHECK(y.sizes() == Sizes{0, 3});
  y.backward(zeros({0, 3}));
  CHECK(max_difference(weight.grad(), zeros({3, 5})) == 0);
}

TEST_CASE("matmul: Eigen gives the same bits for any number of threads") {
  const DefaultDeviceGuard guard(device_with("eigen", matmul_implementations()));
  const int before = num_threads();
  const Forced forced("eigen");
  const Tensor a = random_tensor({300, 70}, 1, DType::float32);
  const Tensor b = random_tensor({70, 90}, 2, DType::float32);
  set_num_threads(1);
  const Tensor one = matmul(a, b);
  set_num_threads(3);
  CHECK(max_difference(matmul(a, b), one) == 0);
  set_num_threads(before);
}

TEST_CASE("matmul and linear: error texts") {
  const Tensor a = zeros({2, 4});
  CHECK(error_of([&] { matmul({}, a); }) == "matmul: a: expected a tensor, got none");
  CHECK(error_of([&] { matmul(scalar(1), a); }) == "matmul: a: expected rank 1 or more, got rank 0");
  CHECK(error_of([&] { matmul(a, scalar(1)); }) == "matmul: b: expected rank 1 or more, got rank 0");
  CHECK(error_of([&] { matmul(zeros({4}), a); }) ==
        "matmul: b: expected 4 rows, as a (sizes [4]) has columns, got 2 (sizes [2, 4])");
  CHECK(error_of([&] { matmul(a, zeros({3})); }) ==
        "matmul: b: expected 4 rows, as a (sizes [2, 4]) has columns, got 3 (sizes [3])");
  CHECK(error_of([&] {
          matmul(a, zeros({5, 3}));
        }) == "matmul: b: expected 4 rows, as a (sizes [2, 4]) has columns, got 5 (sizes [5, 3])");
  CHECK(error_of([&] {
          matmul(a, zeros({4, 3}, {.dtype = DType::float64}));
        }) == "matmul: b: expected dtype float32, got float64");
  CHECK(error_of([&] {
          matmul(zeros({2, 4}, {.dtype = DType::int64}), a);
        }) == "matmul: a: expected a floating dtype, got int64");
  CHECK(error_of([&] {
          linear(a, zeros({3, 5}));
        }) == "linear: x: expected 5 features in the last axis, as weight [3, 5] has, got 4 (sizes [2, 4])");
  CHECK(error_of([&] {
          linear(a, zeros({3, 4, 1}));
        }) == "linear: weight: expected rank 2, got rank 3 (sizes [3, 4, 1])");
  CHECK(error_of([&] { linear(a, zeros({3, 4}), zeros({4})); }) == "linear: bias: expected sizes [3], got [4]");
  CHECK(error_of([&] { linear(scalar(1), zeros({3, 4})); }) == "linear: x: expected rank 1 or more, got rank 0");
  CHECK(error_of([&] { set_matmul_implementation("mkl"); }).find("matmul: implementation: expected one of ") == 0);
  const std::string refused = error_of([] { matmul_implementations({DeviceType::cuda, 0}); });
  CHECK_MESSAGE(test::is_refusal_of_cuda(refused, "matmul"), refused);
}

}  // namespace norma::test
