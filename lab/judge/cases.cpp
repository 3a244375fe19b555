#include "lab/judge/cases.h"

#include "base/error.h"
#include "base/nearest_name.h"
#include "core/copy.h"
#include "core/factory.h"
#include "core/random.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace norma::lab::judge {

namespace {

// The random numbers have a seed and two streams, which come after the stream of x.
constexpr uint64_t kSeed = 20;
constexpr uint64_t kGradientStream = 1;
constexpr uint64_t kParameterStreams = 2;

Case offset_case(const std::string& name, double offset) {
  return {.name = "offset_" + name,
          .column = name,
          .description = fmt::format("N({}, 1)", name),
          .offset = offset,
          .largest = offset + 10,
          .value = [offset](const Draw& draw) { return offset + draw.normal; }};
}

Case huge_case(const std::string& name, double scale) {
  return {.name = "huge_" + name,
          .column = "huge",
          .description = fmt::format("N(0, 1) times {}: the squares overflow float32", name),
          .deviation = scale,
          .largest = 5 * scale,
          .value = [scale](const Draw& draw) { return scale * draw.normal; }};
}

/// N(0, 1) with a bad number at two places.
Case bad_case(const std::string& name, const std::string& description, double bad) {
  return {.name = name, .column = "", .description = description, .value = [bad](const Draw& draw) {
            return draw.element == draw.numel / 3 || draw.element + 1 == draw.numel ? bad : draw.normal;
          }};
}

std::vector<Case> make_cases() {
  return {
      offset_case("0", 0),
      offset_case("1e2", 1e2),
      offset_case("1e4", 1e4),
      offset_case("1e6", 1e6),
      {.name = "constant",
       .column = "constant",
       .description = "every set constant: 0.1, 0.2, 0.3, …",
       .largest = 2000,
       .value = [](const Draw& draw) { return 0.1 * static_cast<double>(draw.set % 10000 + 1); }},
      {.name = "constant_1e10",
       .column = "constant",
       .description = "all elements 1e10",
       .deviation = std::numeric_limits<double>::infinity(),
       .largest = 1e10,
       .value = [](const Draw&) { return 1e10; }},
      {.name = "tiny_variance",
       .column = "tiny",
       .description = "N(0, 1) times 1e-6: the variance is far below eps",
       .deviation = 1e-6,
       .value = [](const Draw& draw) { return 1e-6 * draw.normal; }},
      {.name = "underflow",
       .column = "tiny",
       .description = "N(0, 1) times 1e-25, eps 0: the squares underflow float32",
       .deviation = 1e-25,
       .eps = 0,
       .value = [](const Draw& draw) { return 1e-25 * draw.normal; }},
      {.name = "one_element",
       .column = "constant",
       .description = "N(0, 1), one element in each set",
       .value = [](const Draw& draw) { return draw.normal; },
       .one_element = true},
      huge_case("1e19", 1e19),
      huge_case("1e30", 1e30),
      huge_case("5e37", 5e37),
      bad_case("nan", "N(0, 1) with NaN at two places", std::numeric_limits<double>::quiet_NaN()),
      bad_case("inf", "N(0, 1) with infinity at two places", std::numeric_limits<double>::infinity()),
      {.name = "rand_100",
       .column = "published",
       .description = "100 values in [0, 1) plus 1e4 (NNlib.jl 452)",
       .offset = 1e4,
       .deviation = 0.29,
       .largest = 1e4 + 1,
       .value = [](const Draw& draw) { return 1e4 + draw.uniform; },
       .published = {1, 100},
       .published_quick = {1, 100}},
      {.name = "two_values",
       .column = "published",
       .description = "[-1.83965693, -1.82964566]: the outputs are ±0.8454271584, the gradient of their sum is 0 "
                      "(OneFlow 6149)",
       .offset = 1.83,
       .deviation = 0.005,
       .value = [](const Draw& draw) { return draw.element == 0 ? -1.83965693 : -1.82964566; },
       .published = {1, 2},
       .published_quick = {1, 2}},
      {.name = "randn_1024x32768",
       .column = "published",
       .description = "rows of 32768 from N(100, 1e-4): E[x²] - E[x]² makes the variance 0 (pytorch 40302)",
       .offset = 100,
       .deviation = 0.01,
       .largest = 101,
       .value = [](const Draw& draw) { return 100 + 0.01 * draw.normal; },
       .published = {1024, 32768},
       .published_quick = {16, 32768},
       .only_float32 = true},
      {.name = "layer_16x224x224",
       .column = "published",
       .description = "layer norm of N(0, 1) over (16, 224, 224)",
       .value = [](const Draw& draw) { return draw.normal; },
       .published = {4, 16, 224, 224},
       .published_quick = {1, 16, 224, 224}},
  };
}

/// The limits of a dtype.
struct Range {
  double largest;
  double smallest;  ///< above 0
  int digits;       ///< binary digits of the significand
};

Range range_of(DType dtype) {
  switch (dtype) {
    case DType::float16: return {65504, 0x1p-24, 11};
    case DType::bfloat16: return {0x1.FEp127, 0x1p-133, 8};
    case DType::float64: return {std::numeric_limits<double>::max(), std::numeric_limits<double>::denorm_min(), 53};
    default: return {std::numeric_limits<float>::max(), std::numeric_limits<float>::denorm_min(), 24};
  }
}

/// `values` in row-major order, rounded.
Tensor rounded(const std::vector<double>& values, const Sizes& sizes, DType dtype) {
  return copy_of(from_vector<double>(values, sizes), MemoryFormat::contiguous, dtype);
}

std::vector<double> normal_numbers(int64_t count, uint64_t stream) {
  Generator generator(kSeed + stream);
  return randn({count}, {.dtype = DType::float64}, generator).to_vector<double>();
}

Tensor uniform_numbers(const Sizes& sizes, const Parameter& within, DType dtype, uint64_t stream) {
  Generator generator(kSeed + stream);
  std::vector<double> values = rand(sizes, {.dtype = DType::float64}, generator).to_vector<double>();
  for (double& value : values) {
    value = within.low + within.width * value;
  }
  return rounded(values, sizes, dtype);
}

}  // namespace

const std::vector<Case>& all_cases() {
  static const std::vector<Case> cases = make_cases();
  return cases;
}

std::vector<std::string> case_names() {
  std::vector<std::string> names;
  for (const Case& c : all_cases()) {
    names.push_back(c.name);
  }
  return names;
}

const Case& case_called(std::string_view name) {
  for (const Case& c : all_cases()) {
    if (c.name == name) {
      return c;
    }
  }
  fail("audit", "{}", unknown_name("case", name, case_names()));
}

std::string why_not_held(const Case& c, DType dtype) {
  const Range range = range_of(dtype);
  if (c.only_float32 && dtype != DType::float32) {
    return "published in float32";
  }
  if (c.largest > range.largest) {
    return fmt::format("{} ends at {:.5g}", to_string(dtype), range.largest);
  }
  if (c.deviation < 4 * range.smallest) {
    return fmt::format("the smallest {} is {:.1e}", to_string(dtype), range.smallest);
  }
  if (c.offset != 0) {
    const double step = std::ldexp(1.0, std::ilogb(c.offset) + 1 - range.digits);
    if (step > c.deviation) {
      return fmt::format("at {:g} the steps of {} are {:.2g}, and the deviation is {:g}", c.offset, to_string(dtype),
                         step, c.deviation);
    }
  }
  return "";
}

std::string why_not_taken(const Case& c, const Norm& norm) {
  if (c.one_element && !norm.one_each) {
    return norm.why_not_one_each;
  }
  return c.is_published() && norm.name != "layer" ? "published for layer norm" : "";
}

Inputs make_inputs(const Case& c, const Norm& norm, DType dtype, bool quick) {
  const Sizes sizes = c.is_published() ? (quick ? c.published_quick : c.published)
                      : c.one_element  ? *norm.one_each
                                       : norm.sizes;
  const auto numel = static_cast<size_t>(sizes.numel());
  std::vector<double> values = normal_numbers(sizes.numel(), 0);
  Generator generator(kSeed);
  const bool uniform = c.is_published() && numel < 1000;
  const auto set_value = [&](size_t i, size_t set) {
    values[i] = c.value(
        {.normal = values[i], .uniform = uniform ? generator.uniform() : 0, .element = i, .numel = numel, .set = set});
  };
  Sizes affine = {sizes[1]};
  if (norm.spec) {
    const NormSpec spec = norm.spec(sizes.size());
    NormSets(sizes, spec).for_each([&](size_t i, size_t set, size_t) { set_value(i, set); });
    affine = {};
    for (const int64_t axis : spec.affine) {
      affine.push_back(sizes[axis]);
    }
  } else {
    const bool is_weight = std::ranges::any_of(
        norm.parameters, [](const Parameter& one) { return one.length == Parameter::Length::first_axis; });
    const size_t sets = static_cast<size_t>(is_weight ? sizes[0] : sizes[0] * sizes[1]);
    for (size_t i = 0; i < numel; ++i) {
      set_value(i, i / (numel / sets));
    }
  }
  Inputs inputs{.x = rounded(values, sizes, dtype), .parameters = {}, .dy = {}, .eps = c.eps};
  uint64_t stream = kParameterStreams;
  for (const Parameter& one : norm.parameters) {
    const Sizes length = one.length == Parameter::Length::one      ? Sizes{1}
                         : one.length == Parameter::Length::affine ? affine
                                                                   : Sizes{sizes[0]};
    const TensorOptions options{.dtype = dtype};
    inputs.parameters.emplace_back(one.name, !c.is_published()      ? uniform_numbers(length, one, dtype, stream)
                                             : one.name == "weight" ? ones(length, options)
                                                                    : zeros(length, options));
    ++stream;
  }
  inputs.dy = c.is_published() ? ones(sizes, {.dtype = dtype})
                               : rounded(normal_numbers(sizes.numel(), kGradientStream), sizes, dtype);
  return inputs;
}

}  // namespace norma::lab::judge
