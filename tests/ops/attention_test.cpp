#include "ops/attention/attention.h"

#include "core/anomaly.h"
#include "core/autocast.h"
#include "core/op_profile.h"
#include "core/parallel.h"
#include "core/tape.h"
#include "cuda_devices.h"
#include "error_text.h"
#include "ops/attention/reference.h"
#include "ops/cuda_results.h"
#include "ops/matmul/matmul.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
#include "ops/shape/view.h"

#include <cmath>
#include <limits>
#include <string>
#include <variant>

namespace norma::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// The CPU, and where CUDA's kernels are tested.
std::vector<Device> all_devices() {
  std::vector<Device> devices = cuda_devices();
  devices.insert(devices.begin(), kCpu);
  return devices;
}

enum class Mask { none, causal, boolean, added, broadcast };

struct Case {
  int64_t images, heads, queries, keys, features, values;
  Mask mask = Mask::none;

  [[nodiscard]] std::string text() const {
    return fmt::format("N {} heads {} L {} S {} E {} Ev {} mask {}", images, heads, queries, keys, features, values,
                       static_cast<int>(mask));
  }
};

/// True for about two of three; the keys of one query are all hidden.
Tensor sees(const Sizes& sizes, uint64_t seed) {
  std::vector<bool> values;
  for (const double number : random_tensor(sizes, seed).to_vector<double>()) {
    values.push_back(number < 0.5);
  }
  for (int64_t j = 0; j < sizes[sizes.size() - 1]; ++j) {
    values[static_cast<size_t>(j)] = false;
  }
  return from_vector<bool>(values, sizes, {.dtype = DType::boolean, .device = kCpu});
}

/// The mask of a case in float64 or bool.
Tensor mask_of(const Case& c) {
  switch (c.mask) {
    case Mask::boolean: return sees({c.images, c.heads, c.queries, c.keys}, 5);
    case Mask::added: return random_tensor({c.images, c.heads, c.queries, c.keys}, 5);
    case Mask::broadcast: return random_tensor({c.heads, 1, c.keys}, 5);
    default: return {};
  }
}

struct Problem {
  Tensor q, k, v, mask, dy;
  AttentionOptions options;
};

/// Views of one tensor (N, L, 3, heads, E) where the sizes allow it, else contiguous.
Problem problem_of(const Case& c, DType dtype, Device device) {
  Problem p;
  const auto there = [&](const Tensor& x) { return to_device(copy_of(x, MemoryFormat::contiguous, dtype), device); };
  if (c.queries == c.keys && c.features == c.values) {
    const Tensor qkv = there(random_tensor({c.images, c.queries, 3, c.heads, c.features}, 1));
    const auto view = [&](int64_t i) { return transpose(select(qkv, 2, i), 1, 2).detach(); };
    p.q = view(0);
    p.k = view(1);
    p.v = view(2);
  } else {
    p.q = there(random_tensor({c.images, c.heads, c.queries, c.features}, 1));
    p.k = there(random_tensor({c.images, c.heads, c.keys, c.features}, 2));
    p.v = there(random_tensor({c.images, c.heads, c.keys, c.values}, 3));
  }
  p.dy = there(random_tensor({c.images, c.heads, c.queries, c.values}, 4));
  p.mask = mask_of(c);
  if (p.mask.defined()) {
    p.mask = p.mask.dtype() == DType::boolean ? to_device(p.mask, device) : there(p.mask);
  }
  p.options = {.scale = 0.37, .causal = c.mask == Mask::causal, .mask = p.mask};
  return p;
}

/// y and the gradients of q, k, v and a floating mask.
Tensors results(const Problem& p, bool create_graph = false) {
  Tensors inputs = {p.q.detach().set_requires_grad(), p.k.detach().set_requires_grad(),
                    p.v.detach().set_requires_grad()};
  AttentionOptions options = p.options;
  if (p.mask.defined() && p.mask.dtype() != DType::boolean) {
    options.mask = p.mask.detach().set_requires_grad();
    inputs.push_back(options.mask);
  }
  const Tensor y = scaled_dot_product_attention(inputs[0], inputs[1], inputs[2], options);
  Tensors all = grad({y}, inputs, {p.dy}, {.create_graph = create_graph});
  all.insert(all.begin(), y);
  return all;
}

Tensors expected_results(const Problem& p) {
  const AttentionReferenceResults found = attention_by_definition({.q = p.q,
                                                                   .k = p.k,
                                                                   .v = p.v,
                                                                   .mask = p.mask,
                                                                   .causal = p.options.causal,
                                                                   .scale = p.options.scale.value(),
                                                                   .dy = p.dy});
  Tensors all = {found.y, found.dq, found.dk, found.dv};
  if (found.dmask.defined()) {
    all.push_back(sum_to_size(found.dmask, p.mask.sizes()));
  }
  return all;
}

/// Largest number of x, at least 1.
double unit_of(const Tensor& x) {
  return std::max(1.0, largest_number(x));
}

void check_case(const Case& c, DType dtype, Device device, double tolerance) {
  const Problem p = problem_of(c, dtype, device);
  const Tensors found = results(p);
  const Tensors expected = expected_results(p);
  REQUIRE(found.size() == expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    CHECK(found[i].dtype() == dtype);
    CHECK(found[i].device() == device);
    const double difference = max_difference(found[i], expected[i]) / unit_of(expected[i]);
    CHECK_MESSAGE(difference <= tolerance, c.text(), " ", to_string(dtype), " on ", to_string(device), ": result ", i,
                  " differs by ", difference);
  }
}

/// A head has several tiles: 300 rows of 1000 keys.
const std::vector<Case> kLarge = {{1, 2, 300, 1000, 5, 3},
                                  {2, 1, 300, 1000, 4, 6, Mask::causal},
                                  {1, 3, 1000, 300, 3, 2, Mask::causal},
                                  {1, 2, 300, 1000, 4, 6, Mask::added},
                                  {3, 2, 197, 197, 64, 64},
                                  // Tiles whose numbers of keys are rounded up.
                                  {1, 1, 2000, 2000, 3, 2, Mask::causal},
                                  {1, 1, 2000, 2100, 3, 2, Mask::causal}};

std::vector<Case> small_cases() {
  std::vector<Case> cases;
  for (const Mask mask : {Mask::none, Mask::causal, Mask::boolean, Mask::added, Mask::broadcast}) {
    for (const int64_t length : {1, 31, 32, 33}) {
      cases.push_back({2, 3, length, length, 7, 7, mask});
      cases.push_back({3, 2, length, 5, 4, 9, mask});
      cases.push_back({1, 2, 5, length, 33, 1, mask});
    }
  }
  return cases;
}

}  // namespace

TEST_CASE("attention: values and gradients are those of the definition") {
  for (const Device device : all_devices()) {
    for (const Case& c : small_cases()) {
      check_case(c, DType::float64, device, 1e-12);
      check_case(c, DType::float32, device, 1e-5);
    }
  }
}

TEST_CASE("attention: several tiles of a head") {
  for (const Device device : all_devices()) {
    for (const Case& c : kLarge) {
      check_case(c, DType::float64, device, 1e-11);
      check_case(c, DType::float32, device, 2e-5);
    }
  }
}

TEST_CASE(
    "attention: of 16 bits, probabilities and the gradients of scores are rounded once more, and sums are float32") {
  for (const Device device : all_devices()) {
    for (const Case& c : small_cases()) {  // half a unit of the result, and as much of each factor
      check_case(c, DType::bfloat16, device, 0x1.8p-8);
      check_case(c, DType::float16, device, 0x1.8p-11);
    }
  }
  set_matmul_implementation("eigen");  // multiplies float32, and so rounds once
  for (const Case& c : small_cases()) {
    check_case(c, DType::bfloat16, kCpu, 0x1p-8);
  }
  set_matmul_implementation("");
}

TEST_CASE("attention: a backward pass that is recorded gives the same gradients, the mask's too") {
  for (const Case& c : small_cases()) {
    const Problem p = problem_of(c, DType::float64, kCpu);
    const Tensors once = results(p, /* create_graph= */ true);
    const Tensors expected = expected_results(p);
    REQUIRE(once.size() == expected.size());
    for (size_t i = 0; i < once.size(); ++i) {
      CHECK_MESSAGE(max_difference(once[i], expected[i]) <= 1e-12 * unit_of(expected[i]), c.text(), " result ", i);
    }
  }
}

TEST_CASE("attention: anomaly mode finds no fault in hidden keys, and finds NaN") {
  for (const Device device : all_devices()) {
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
      Problem p = problem_of({2, 3, 5, 7, 4, 6}, dtype, device);
      const TensorOptions options{.dtype = dtype, .device = device};
      const Tensor seen = to_device(sees({5, 7}, 5), device);
      const Tensor hiding = where(seen, full({}, 0.5, options), full({}, -kInfinity, options));
      for (const AttentionOptions& given :
           {AttentionOptions{.scale = 0.37, .causal = true}, AttentionOptions{.scale = 0.37, .mask = seen},
            AttentionOptions{.scale = 0.37, .mask = hiding}}) {
        p.options = given;
        p.mask = given.mask;
        const Tensors expected = expected_results(p);
        const AnomalyGuard guard;
        for (const bool create_graph : {false, true}) {
          const Tensors found = results(p, create_graph);
          REQUIRE(found.size() == expected.size());
          for (size_t i = 0; i < found.size(); ++i) {
            CHECK(max_difference(found[i], expected[i]) <=
                  (dtype == DType::float32 ? 1e-5 : 0x1p-7) * unit_of(expected[i]));
          }
        }
        const Tensor q = p.q.detach().set_requires_grad();
        const Tensor y = scaled_dot_product_attention(q, p.k, p.v, p.options);
        const Tensor dq = grad({y}, {q}, {p.dy}, {.create_graph = true})[0];
        CHECK(std::isfinite(largest_number(grad({dq}, {q}, {ones_like(dq)})[0])));
        CHECK(error_of([&] {
                scaled_dot_product_attention(full(q.sizes(), NAN, options), p.k, p.v, p.options);
              }).starts_with("scaled_dot_product_attention: forward gave NaN in output 0"));
      }
    }
    // Autocast converts the mask.
    const Problem p = problem_of({2, 3, 5, 7, 4, 6}, DType::float32, device);
    const TensorOptions options{.device = device};
    const Tensor hiding = where(to_device(sees({5, 7}, 5), device), zeros({}, options), full({}, -kInfinity, options));
    const Autocast autocast(DType::bfloat16);
    const AnomalyGuard guard;
    CHECK(error_of([&] { scaled_dot_product_attention(p.q, p.k, p.v, {.mask = hiding}); }) == "no error");
    CHECK(anomaly_enabled());
  }
}

TEST_CASE("attention: finite differences") {
  const Tensors qkv = {random_tensor({1, 2, 3, 2}, 1), random_tensor({1, 2, 4, 2}, 2), random_tensor({1, 2, 4, 3}, 3)};
  const auto with = [](const AttentionOptions& options) {
    return [options](const Tensors& in) {
      AttentionOptions given = options;
      if (in.size() > 3) {
        given.mask = in[3];
      }
      return Tensors{scaled_dot_product_attention(in[0], in[1], in[2], given)};
    };
  };
  check_gradients("attention", with({}), qkv, /* twice= */ true);
  check_gradients("causal", with({.scale = -0.8, .causal = true}), qkv, true);
  for (const Sizes& sizes : {Sizes{1, 2, 3, 4}, Sizes{3, 1}}) {
    const Tensor mask = to_device(sees(sizes, 6), default_device());
    check_gradients("bool mask " + to_string(sizes), with({.mask = mask}), qkv, true);
  }
  Tensors with_mask = qkv;
  with_mask.push_back(random_tensor({1, 2, 3, 4}, 4));
  check_gradients("mask", with({.scale = 1.3}), with_mask, true);
  with_mask.back() = random_tensor({1, 1, 3, 1}, 4);
  check_gradients("broadcast mask", with({}), with_mask, true);
}

TEST_CASE("attention: values of PyTorch") {
  // import torch; F = torch.nn.functional
  // t = lambda n, *s: ((torch.arange(float(n), dtype=torch.float64) * 7 % 11 - 5) / 4).reshape(s)
  // q, k, v = t(12, 1, 2, 2, 3), t(18, 1, 2, 3, 3) * 0.5, t(12, 1, 2, 3, 2)
  // q.requires_grad_(); y = F.scaled_dot_product_attention(q, k, v, OPTIONS)
  // y.flatten(); torch.autograd.grad(y.sum(), q)[0].flatten()
  const auto t = [](int64_t count, const Sizes& sizes, double factor) {
    std::vector<double> values;
    for (int64_t i = 0; i < count; ++i) {
      values.push_back(static_cast<double>(i * 7 % 11 - 5) / 4 * factor);
    }
    return from_vector<double>(values, sizes);
  };
  const Tensor q = t(12, {1, 2, 2, 3}, 1).set_requires_grad();
  const Tensor k = t(18, {1, 2, 3, 3}, 0.5);
  const Tensor v = t(12, {1, 2, 3, 2}, 1);
  const auto check_literals = [&](const AttentionOptions& options, const std::vector<double>& y_values,
                                  const std::vector<double>& dq_values) {
    const Tensor y = scaled_dot_product_attention(q, k, v, options);
    CHECK(max_difference(y, from_vector<double>(y_values, y.sizes())) <= 1e-9);
    const Tensor dq = grad({y}, {q}, {ones_like(y)})[0];
    CHECK(max_difference(dq, from_vector<double>(dq_values, q.sizes())) <= 1e-9);
  };
  // OPTIONS: none
  check_literals({},
                 {-0.72543293601, 0.36444857909, -0.32169865769, 0.31436257734, 0.22837866505, -0.11871097461,
                  0.2800831748, -0.12351444992},
                 {0.15418625433, -0.012769546223, -0.012769546223, 0.10408819761, 0.005433597672, 0.005433597672,
                  0.061324260937, 0.061324260937, -0.30985407504, 0.061103108602, 0.061103108602, -0.30996275321});
  // OPTIONS: is_causal=True
  check_literals({.causal = true}, {-1.25, 0.5, -0.71094893944, 1.0390510606, 1, 0, 0.43746949483, 0.21094893944},
                 {0, 0, 0, 0.21883932625, -0.021883932625, -0.021883932625, 0, 0, 0, 0.018236610521, 0.018236610521,
                  -0.18236610521});
  const Tensor mask = from_vector<bool>({true, false, true, false, false, false}, {2, 3});
  // OPTIONS: scale=2.0, attn_mask=torch.tensor([[True, False, True], [False] * 3])
  check_literals({.scale = 2.0, .mask = mask},
                 {-1.165021362, 0.42918446837, 0, 0, 0.92489168728, -0.075108312718, 0, 0},
                 {0.030061647008, -0.0066803660018, -0.0066803660018, 0, 0, 0, 0.070595305806, 0.070595305806,
                  -0.31767887613, 0, 0, 0});
}

TEST_CASE("attention: the result lies as tokens, and views of one tensor are taken without a copy") {
  for (const Device device : all_devices()) {
    for (const DType dtype : {DType::float32, DType::bfloat16, DType::float64}) {
      const Problem p = problem_of({2, 3, 33, 33, 8, 8}, dtype, device);
      OpProfile profile(device);
      const Tensor y = scaled_dot_product_attention(p.q, p.k, p.v);
      CHECK(y.strides() == Strides{33 * 24, 8, 24, 1});
      CHECK(reshape(transpose(y, 1, 2), {2, 33, 24}).storage() == y.storage());
      const Tensor gradient = results(p)[1];
      CHECK(gradient.strides() == Strides{33 * 24, 8, 24, 1});
      int64_t attentions = 0;
      for (const OpRecord& record : profile.records()) {
        attentions += record.work.op.starts_with("scaled_dot_product_attention") ? 1 : 0;
        const auto* copy = std::any_cast<CopyCall>(&record.work.call);
        CHECK_MESSAGE((copy == nullptr || copy->from == copy->to), record.work.op, " on ", to_string(device));
      }
      CHECK(attentions == 3);
      CHECK(profile.records()[0].work.flops == 2.0 * 6 * 33 * 33 * 16);
    }
  }
}

TEST_CASE("attention: operands of any strides") {
  const Case c{2, 3, 6, 6, 4, 4};
  for (const Device device : all_devices()) {
    const Problem p = problem_of(c, DType::float32, device);
    const Tensors expected = results(p);
    Problem other = p;
    const auto transposed = [](const Tensor& x) {
      return transpose(copy_of(transpose(x, 2, 3), MemoryFormat::contiguous), 2, 3);
    };
    other.q = transposed(p.q);
    other.k = transposed(p.k);
    other.v = transposed(p.v);
    other.dy = transposed(p.dy);
    const Tensors found = results(other);
    for (size_t i = 0; i < found.size(); ++i) {
      CHECK(max_difference(found[i], expected[i]) <= 1e-5);
    }
    // The same for all images and heads, or with gaps between neighbours.
    const Tensor one = to_device(random_tensor({1, 1, 6, 4}, 9, DType::float32), device);
    const Tensor wide = to_device(random_tensor({2, 3, 6, 8}, 9, DType::float32), device);
    for (const Tensor& x : {expand(one, {2, 3, 6, 4}), slice(wide, 3, 0, 8, 2)}) {
      Problem strided = p;
      strided.q = strided.k = strided.v = strided.dy = x;
      Problem dense = p;
      dense.q = dense.k = dense.v = dense.dy = copy_of(x, MemoryFormat::contiguous);
      const Tensors a = results(strided);
      const Tensors b = results(dense);
      for (size_t i = 0; i < a.size(); ++i) {
        CHECK(max_difference(a[i], b[i]) <= 1e-5);
      }
    }
  }
}

TEST_CASE("attention: a query that sees no key has zeros, and finite gradients") {
  for (const Device device : all_devices()) {
    for (const DType dtype : {DType::float32, DType::float64, DType::bfloat16}) {
      Problem p = problem_of({1, 2, 3, 4, 5, 6}, dtype, device);
      const Tensor nothing =
          from_vector<bool>({true, true, false, false, false, false, false, false, true, true, true, true}, {3, 4},
                            {.dtype = DType::boolean, .device = device});
      const TensorOptions options{.dtype = dtype, .device = device};
      for (const bool boolean : {true, false}) {
        p.mask = boolean ? nothing : where(nothing, zeros({}, options), full({}, -kInfinity, options));
        p.options.mask = p.mask;
        const Tensors found = results(p);
        CHECK(largest_number(narrow(found[0], 2, 1, 1)) == 0);
        CHECK(largest_number(narrow(found[0], 2, 0, 1)) > 0);
        CHECK(largest_number(narrow(found[1], 2, 1, 1)) == 0);
        for (const Tensor& result : found) {
          CHECK(std::isfinite(largest_number(result)));
        }
        // Also where the backward pass is recorded.
        const Tensor q = p.q.detach().set_requires_grad();
        const Tensor y = scaled_dot_product_attention(q, p.k, p.v, p.options);
        const Tensor dq = grad({y}, {q}, {p.dy}, {.create_graph = true})[0];
        const double tolerance = dtype == DType::float64 ? 1e-12 : dtype == DType::float32 ? 1e-5 : 0x1p-7;
        CHECK(max_difference(dq, found[1]) <= tolerance * unit_of(found[1]));
        CHECK(largest_number(narrow(dq, 2, 1, 1)) == 0);
        CHECK(std::isfinite(largest_number(grad({dq}, {q}, {ones_like(dq)})[0])));
      }
    }
  }
}

TEST_CASE("attention: large scores") {
  for (const Device device : all_devices()) {
    for (const double factor : {1e4, -1e4}) {
      const Tensor q = full({1, 1, 2, 1}, factor, {.device = device});
      const Tensor k = to_device(from_vector<float>({1, 1, 0.5F, -1}, {1, 1, 4, 1}), device);
      const Tensor v = to_device(from_vector<float>({1, 2, 3, 4}, {1, 1, 4, 1}), device);
      const Tensor y = scaled_dot_product_attention(q, k, v, {.scale = 1.0});
      CHECK(max_difference(y, full({1, 1, 2, 1}, factor > 0 ? 1.5 : 4.0)) == 0);
    }
    // NaN is not lost.
    for (const DType dtype : {DType::float32, DType::bfloat16, DType::float16}) {
      const Tensor q = full({1, 1, 1, 1}, NAN, {.dtype = dtype, .device = device});
      const Tensor ones_there = ones({1, 1, 3, 1}, {.dtype = dtype, .device = device});
      const Tensor y = to_device(scaled_dot_product_attention(q, ones_there, ones_there), kCpu);
      CHECK(std::isnan(y.to_vector<float>().front()));
    }
  }
}

TEST_CASE("attention: the same bits for any number of threads") {
  const int before = num_threads();
  for (const Case& c : {Case{1, 1, 300, 300, 16, 16}, Case{3, 1, 300, 700, 16, 8, Mask::causal},
                        Case{2, 3, 197, 197, 64, 64, Mask::added}}) {
    const Problem p = problem_of(c, DType::float32, kCpu);
    std::vector<std::vector<std::vector<float>>> bits;
    for (const int threads : {1, 2, 3}) {
      set_num_threads(threads);
      bits.emplace_back();
      for (const Tensor& x : results(p)) {
        bits.back().push_back(x.to_vector<float>());
      }
      CHECK(num_threads() == threads);
    }
    CHECK_MESSAGE(bits[0] == bits[1], c.text());
    CHECK_MESSAGE(bits[0] == bits[2], c.text());
  }
  set_num_threads(before);
}

TEST_CASE("attention: CUDA's kernels in any order of threads") {
  check_any_order("attention", [](Device device) {
    return results(problem_of({2, 3, 33, 70, 8, 5, Mask::boolean}, DType::float32, device));
  });
}

TEST_CASE("attention: what is kept for backward grows with L") {
  const auto kept = [](int64_t length) {
    const Problem p = problem_of({2, 3, length, length, 8, 8}, DType::float32, kCpu);
    const Tensor q = clone(p.q).set_requires_grad();
    return static_cast<int64_t>(Tape(scaled_dot_product_attention(mul(q, 1), p.k, p.v)).saved_bytes());
  };
  const int64_t of_row = 2 * 3 * (8 + 2) * 4 + 2 * 3 * 3 * 8 * 4;  // mul(q, 1) and two numbers; the tensor of k and v
  CHECK(kept(64) == 64 * of_row);
  CHECK(kept(512) == 512 * of_row);
}

TEST_CASE("attention: a tensor without elements") {
  for (const Device device : all_devices()) {
    const auto attend = [&](const Sizes& q, const Sizes& k, const Sizes& v) {
      const Tensors in = {zeros(q, {.device = device}).set_requires_grad(),
                          zeros(k, {.device = device}).set_requires_grad(),
                          zeros(v, {.device = device}).set_requires_grad()};
      const Tensor y = scaled_dot_product_attention(in[0], in[1], in[2]);
      const Tensors gradients = grad({y}, in, {ones_like(y)});
      for (size_t i = 0; i < in.size(); ++i) {
        CHECK(gradients[i].sizes() == in[i].sizes());
        CHECK(largest_number(gradients[i]) == 0);
      }
      CHECK(largest_number(y) == 0);
      return y.sizes();
    };
    CHECK(attend({2, 3, 4, 5}, {2, 3, 0, 5}, {2, 3, 0, 6}) == Sizes{2, 3, 4, 6});
    CHECK(attend({2, 3, 0, 5}, {2, 3, 4, 5}, {2, 3, 4, 6}) == Sizes{2, 3, 0, 6});
    CHECK(attend({0, 3, 2, 5}, {0, 3, 4, 5}, {0, 3, 4, 6}) == Sizes{0, 3, 2, 6});
    CHECK(attend({2, 0, 2, 5}, {2, 0, 4, 5}, {2, 0, 4, 6}) == Sizes{2, 0, 2, 6});
    CHECK(attend({2, 3, 2, 5}, {2, 3, 4, 5}, {2, 3, 4, 0}) == Sizes{2, 3, 2, 0});
  }
}

TEST_CASE("attention: only the gradients that are wanted") {
  const Problem p = problem_of({2, 3, 5, 5, 4, 4, Mask::added}, DType::float64, kCpu);
  const Tensors expected = expected_results(p);
  for (size_t wanted = 0; wanted < 4; ++wanted) {
    Tensors in = {p.q, p.k, p.v, p.mask};
    in[wanted] = in[wanted].detach().set_requires_grad();
    const Tensor y = scaled_dot_product_attention(in[0], in[1], in[2], {.scale = p.options.scale, .mask = in[3]});
    CHECK(max_difference(grad({y}, {in[wanted]}, {p.dy})[0], expected[wanted + 1]) <= 1e-12);
  }
}

TEST_CASE("attention: the reference in place of the kernels") {
  const Problem p = problem_of({2, 3, 5, 7, 4, 6, Mask::added}, DType::float32, kCpu);
  CHECK_FALSE(attention_reference());
  const Tensors kernels = results(p);
  set_attention_reference(true);
  const Tensors by_definition = results(p);
  set_attention_reference(false);
  const Tensors expected = expected_results(p);
  bool differs = false;
  for (size_t i = 0; i < expected.size(); ++i) {
    CHECK(by_definition[i].strides() == kernels[i].strides());
    CHECK(max_difference(by_definition[i], copy_of(expected[i], MemoryFormat::preserve, DType::float32)) <=
          (i == 4 ? 1e-6 : 0.0));  // the sums of the mask's gradient are rounded
    differs = differs || max_difference(by_definition[i], kernels[i]) > 0;
  }
  CHECK(differs);
}

TEST_CASE("attention: backward is by what computed the forward pass") {
  const Problem p = problem_of({2, 3, 5, 7, 4, 6}, DType::float32, kCpu);
  const Tensors expected = expected_results(p);
  for (const bool by_definition : {false, true}) {
    CAPTURE(by_definition);
    const Tensors in = {p.q.detach().set_requires_grad(), p.k.detach().set_requires_grad(),
                        p.v.detach().set_requires_grad()};
    set_attention_reference(by_definition);
    const Tensor y = scaled_dot_product_attention(in[0], in[1], in[2], p.options);
    set_attention_reference(!by_definition);
    const Tensors gradients = grad({y}, in, {p.dy});
    set_attention_reference(false);
    for (size_t i = 0; i < in.size(); ++i) {
      CHECK(max_difference(gradients[i], expected[i + 1]) <= 1e-5 * unit_of(expected[i + 1]));
    }
  }
}

TEST_CASE("attention: autocast computes in 16 bits, and a mask follows") {
  Problem p = problem_of({1, 2, 5, 5, 4, 4, Mask::added}, DType::float32, kCpu);
  p.dy = copy_of(p.dy, MemoryFormat::contiguous, DType::bfloat16);
  const Autocast autocast(DType::bfloat16);
  const Tensors found = results(p);
  CHECK(found[0].dtype() == DType::bfloat16);
  CHECK(found[1].dtype() == DType::float32);
  CHECK(found[4].dtype() == DType::float32);
  const Tensors expected = expected_results(p);
  for (size_t i = 0; i < found.size(); ++i) {
    CHECK(max_difference(found[i], expected[i]) <= 0.05 * unit_of(expected[i]));
  }
}

TEST_CASE("attention: errors") {
  const auto of = [](const Sizes& sizes, DType dtype = DType::float32) {
    return zeros(sizes, {.dtype = dtype, .device = kCpu});
  };
  const Tensor q = of({2, 3, 4, 5});
  const Tensor k = of({2, 3, 6, 5});
  const Tensor v = of({2, 3, 6, 7});
  const auto error = [&](const Tensor& a, const Tensor& b, const Tensor& c, const AttentionOptions& options = {}) {
    return error_of([&] { scaled_dot_product_attention(a, b, c, options); });
  };
  const std::string op = "scaled_dot_product_attention: ";
  CHECK(error(q, k, v) == "no error");
  CHECK(error({}, k, v) == op + "q: expected a tensor, got none");
  CHECK(error(q, {}, v) == op + "k: expected a tensor, got none");
  CHECK(error(q, k, {}) == op + "v: expected a tensor, got none");
  CHECK(error(select(q, 0, 0), k, v) == op + "q: expected rank 4, got rank 3 (sizes [3, 4, 5])");
  CHECK(error(q, select(k, 0, 0), v) == op + "k: expected rank 4, got rank 3 (sizes [3, 6, 5])");
  CHECK(error(q, k, select(v, 0, 0)) == op + "v: expected rank 4, got rank 3 (sizes [3, 6, 7])");
  CHECK(error(of({2, 3, 4, 5}, DType::int64), k, v) == op + "q: expected a floating dtype, got int64");
  CHECK(error(q, of({2, 3, 6, 5}, DType::float64), v) == op + "k: expected dtype float32, got float64");
  CHECK(error(q, k, of({2, 3, 6, 7}, DType::float16)) == op + "v: expected dtype float32, got float16");
  CHECK(error(of({2, 3, 4, 0}), of({2, 3, 6, 0}), v) ==
        op + "q: expected at least one feature, got sizes [2, 3, 4, 0]");
  CHECK(error(q, of({1, 3, 6, 5}), v) == op + "k: expected sizes [2, 3, 6, 5], got [1, 3, 6, 5]");
  CHECK(error(q, of({2, 2, 6, 5}), v) == op + "k: expected sizes [2, 3, 6, 5], got [2, 2, 6, 5]");
  CHECK(error(q, of({2, 3, 6, 4}), v) == op + "k: expected sizes [2, 3, 6, 5], got [2, 3, 6, 4]");
  CHECK(error(q, k, of({2, 3, 5, 7})) == op + "v: expected sizes [2, 3, 6, 7], got [2, 3, 5, 7]");
  CHECK(error(q, k, of({2, 4, 6, 7})) == op + "v: expected sizes [2, 3, 6, 7], got [2, 4, 6, 7]");
  CHECK(error(q, k, v, {.scale = kInfinity}) == op + "scale: expected a finite number, got inf");
  CHECK(error(q, k, v, {.scale = NAN}) == op + "scale: expected a finite number, got nan");
  CHECK(error(q, k, v, {.mask = of({4, 5})}) == op + "mask: expected sizes that broadcast to [2, 3, 4, 6], got [4, 5]");
  CHECK(error(q, k, v, {.mask = of({1, 2, 3, 4, 6})}) ==
        op + "mask: expected sizes that broadcast to [2, 3, 4, 6], got [1, 2, 3, 4, 6]");
  CHECK(error(q, k, v, {.mask = of({4, 6}, DType::float64)}) ==
        op + "mask: expected dtype bool or float32, got float64");
  CHECK(error(q, k, v, {.causal = true, .mask = of({4, 6})}) ==
        op + "mask: expected none with causal, got sizes [4, 6]");
  for (const Device device : cuda_devices()) {
    const std::string place = to_string(device);
    CHECK(error(q, to_device(k, device), v) == op + "k: expected device cpu, got " + place);
    CHECK(error(q, k, to_device(v, device)) == op + "v: expected device cpu, got " + place);
    CHECK(error(q, k, v, {.mask = zeros({4, 6}, {.device = device})}) ==
          op + "mask: expected device cpu, got " + place);
  }
}

}  // namespace norma::test
