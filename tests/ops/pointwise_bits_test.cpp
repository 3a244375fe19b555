#include "core/simd/target.h"
#include "ops/optimizer/optimizer.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/copy.h"
#include "support.h"

#include <bit>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

using namespace norma;
using namespace norma::test;

namespace {

struct Function {
  std::string name;
  Tensor (*f)(const Tensor& x);
};

const Function kFunctions[] = {
    {"neg", [](const Tensor& x) { return neg(x); }},
    {"abs", [](const Tensor& x) { return abs(x); }},
    {"clamp", [](const Tensor& x) { return clamp(x, -0.5, 0.75); }},
    {"relu", [](const Tensor& x) { return relu(x); }},
    {"sqrt", [](const Tensor& x) { return sqrt(x); }},
    {"rsqrt", [](const Tensor& x) { return rsqrt(x); }},
    {"pow 3", [](const Tensor& x) { return pow(x, 3); }},
    {"exp", [](const Tensor& x) { return exp(x); }},
    {"log", [](const Tensor& x) { return log(x); }},
    {"tanh", [](const Tensor& x) { return tanh(x); }},
    {"erf", [](const Tensor& x) { return erf(x); }},
    {"sigmoid", [](const Tensor& x) { return sigmoid(x); }},
    {"silu", [](const Tensor& x) { return silu(x); }},
    {"gelu", [](const Tensor& x) { return gelu(x); }},
    {"gelu, tanh", [](const Tensor& x) { return gelu(x, GeluApproximation::tanh); }},
};

/// The bits of x; every NaN has the same.
std::vector<uint64_t> bits_of(const Tensor& x) {
  std::vector<uint64_t> bits;
  for (const double value : x.to_vector<double>()) {
    bits.push_back(value == value ? std::bit_cast<uint64_t>(value) : ~uint64_t{0});
  }
  return bits;
}

/// FNV-1a.
uint32_t digest_of(const Tensor& x) {
  uint32_t digest = 2166136261U;
  for (const uint64_t word : bits_of(x)) {
    for (int shift = 0; shift < 64; shift += 8) {
      digest = (digest ^ static_cast<uint32_t>(word >> shift & 0xFFU)) * 16777619U;
    }
  }
  return digest;
}

/// Numbers of all sizes and both signs, and many between -10 and 10.
Tensor arguments() {
  std::vector<float> values{0.0F, -0.0F, INFINITY, -INFINITY, std::nanf("")};
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 1000003) {
    values.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  for (int i = -5000; i < 5000; ++i) {
    values.push_back(static_cast<float>(i) / 512.0F);
  }
  return to_device(from_vector<float>(values, {static_cast<int64_t>(values.size())}), kCpu);
}

Tensor gradient_of(const Function& function, const Tensor& x, const Tensor& dy) {
  const Tensor input = x.detach().set_requires_grad();
  return grad({function.f(input)}, {input}, {dy})[0];
}

/// The elements of a dense vector with a gap after each.
Tensor with_gaps(const Tensor& x) {
  const Tensor memory = zeros({3 * x.numel()}, {.dtype = x.dtype()});
  Tensor gaps = alias(memory, {x.numel()}, {3}, 1);
  copy_into(x, gaps);
  return gaps;
}

}  // namespace

TEST_CASE("pointwise: operands with gaps give the bits of dense ones, every floating dtype") {
  for (const DType dtype : {DType::float32, DType::float64, DType::float16, DType::bfloat16}) {
    CAPTURE(to_string(dtype));
    // Longer than the buffers that operands with gaps go through, and no multiple of them.
    const Tensor x = to(random_tensor({1003}, 5), dtype);
    const Tensor y = to(random_tensor({1003}, 6), dtype);
    const Tensor x_gaps = with_gaps(x);
    const Tensor y_gaps = with_gaps(y);
    for (const Function& function : kFunctions) {
      CAPTURE(function.name);
      CHECK(bits_of(function.f(x_gaps)) == bits_of(function.f(x)));
      CHECK(bits_of(gradient_of(function, x_gaps, y_gaps)) == bits_of(gradient_of(function, x, y)));
    }
    const std::vector<uint64_t> quotient = bits_of(div(x, y));
    CHECK(bits_of(div(x_gaps, y)) == quotient);
    CHECK(bits_of(div(x, y_gaps)) == quotient);
    CHECK(bits_of(div(x_gaps, y_gaps)) == quotient);
    CHECK(bits_of(add(x_gaps, y)) == bits_of(add(x, y)));
    CHECK(bits_of(sub(x, y_gaps)) == bits_of(sub(x, y)));
    CHECK(bits_of(mul(x_gaps, y_gaps)) == bits_of(mul(x, y)));
    CHECK(bits_of(maximum(x_gaps, y)) == bits_of(maximum(x, y)));
    const Tensor number = alias(y, {1}, {1}, 3);
    CHECK(bits_of(div(x_gaps, number)) == bits_of(div(x, number)));
    CHECK(bits_of(div(number, x_gaps)) == bits_of(div(number, x)));
    Tensor target = with_gaps(x);
    add_(target, y);
    CHECK(bits_of(target) == bits_of(add(x, y)));
  }
}

namespace {

struct Digests {
  std::string name;
  uint32_t value[2];     ///< where a multiply-add is rounded once, and twice
  uint32_t gradient[2];  ///< for dy = 0.7
};

// What this test computes, printed once with NORMA_SIMD=avx2 and once with sse4.
const Digests kDigests[] = {
    {"neg", {0x1B1F9F42, 0x1B1F9F42}, {0x734F21D5, 0x734F21D5}},
    {"abs", {0x41C10A42, 0x41C10A42}, {0xE5368C92, 0xE5368C92}},
    {"clamp", {0x717DDFBE, 0x717DDFBE}, {0x41BF3B05, 0x41BF3B05}},
    {"relu", {0xB6E6196E, 0xB6E6196E}, {0xBF003B15, 0xBF003B15}},
    {"sqrt", {0x79AC03E4, 0x79AC03E4}, {0x122A0D3D, 0x122A0D3D}},
    {"rsqrt", {0x7282EB31, 0x7282EB31}, {0xA60FCA82, 0xA60FCA82}},
    {"pow 3", {0x39590CD6, 0x39590CD6}, {0xB527EB34, 0xB527EB34}},
    {"exp", {0xB98AC1D4, 0xC0E96D83}, {0x617BA63C, 0xF15C3564}},
    {"log", {0xEFA83C6F, 0x9DB5C82F}, {0x35A34EEA, 0x35A34EEA}},
    {"tanh", {0x21C1FDD1, 0xB105F459}, {0xFBD3FFBB, 0xD622031B}},
    {"erf", {0x5D217C30, 0xCFC75C78}, {0x50635E9F, 0x834F2A5B}},
    {"sigmoid", {0x1AC20B4E, 0xCE0EFC8E}, {0x5E2BEAE0, 0xC2CEA026}},
    {"silu", {0xB615B3C0, 0x510945BF}, {0xADED6A2F, 0x085F9714}},
    {"gelu", {0xECD67F89, 0xD2880960}, {0x1BC6ACAF, 0x6A6A7CCA}},
    {"gelu, tanh", {0x4EA6F3CA, 0x8C3661F7}, {0x91C5E061, 0x5CF273EB}},
};

}  // namespace

// The functions are sums, products, quotients, roots and multiply-adds, which IEEE 754 defines to the last bit.
TEST_CASE("pointwise: the same bits on every processor, float32") {
  const size_t roundings = simd::target() == "sse4" ? 1 : 0;
  const Tensor x = arguments();
  const Tensor dy = full({x.numel()}, 0.7, {.device = kCpu});
  REQUIRE(std::size(kDigests) == std::size(kFunctions));
  for (size_t i = 0; i < std::size(kFunctions); ++i) {
    CAPTURE(kFunctions[i].name);
    REQUIRE(kDigests[i].name == kFunctions[i].name);
    CHECK(digest_of(kFunctions[i].f(x)) == kDigests[i].value[roundings]);
    CHECK(digest_of(gradient_of(kFunctions[i], x, dy)) == kDigests[i].gradient[roundings]);
  }
}
