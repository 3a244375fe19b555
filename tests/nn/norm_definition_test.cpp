#include "norm_cases.h"

using namespace norma;
using namespace norma::test;

namespace {

/// Every layer of the catalogue on sizes around the vector width, with C = 1, with H = W = 1 and with one image, where
/// the norm allows it.
std::vector<NormCase> catalogue() {
  std::vector<NormCase> cases;
  const Sizes kImages[] = {{3, 5, 4, 3}, {2, 33, 1, 2}, {4, 1, 3, 5}, {1, 8, 3, 7}};
  const Sizes kPixel = {6, 7, 1, 1};
  for (const Sizes& sizes : kImages) {
    for (const char* kind : {"batch2d", "ghost", "renorm", "frozen", "layer2d", "rms2d", "instance2d", "response"}) {
      cases.push_back({.kind = kind, .sizes = sizes});
    }
    cases.push_back({.kind = "instance2d", .sizes = sizes, .track_running_stats = false});
    cases.push_back({.kind = "batch2d", .sizes = sizes, .momentum = std::nullopt});
    cases.push_back({.kind = "batch2d", .sizes = sizes, .track_running_stats = false});
    cases.push_back({.kind = "group", .sizes = sizes, .groups = sizes[1] % 3 == 0 ? 3 : sizes[1]});
    cases.push_back({.kind = "group", .sizes = sizes});
    for (const char* kind : {"layer", "rms", "simple"}) {
      cases.push_back({.kind = kind, .sizes = sizes, .shape = {sizes[3]}});
      cases.push_back({.kind = kind, .sizes = sizes, .shape = {sizes[2], sizes[3]}});
    }
    if (sizes[1] > 1) {  // of one channel there is no unbiased variance
      cases.push_back({.kind = "simple2d", .sizes = sizes});
    }
  }
  for (const char* kind : {"batch2d", "ghost", "renorm", "frozen", "layer2d", "rms2d", "simple2d", "group"}) {
    cases.push_back({.kind = kind, .sizes = kPixel});
  }
  for (const char* kind : {"batch2d", "ghost", "renorm", "instance2d", "layer2d", "group"}) {
    cases.push_back({.kind = kind, .sizes = kImages[0], .bias = false});
  }
  cases.push_back({.kind = "layer", .sizes = kImages[0], .shape = {4, 3}, .bias = false});
  for (const Sizes& sizes : {Sizes{7, 33}, Sizes{3, 4, 5}, Sizes{5, 1, 2}}) {
    cases.push_back({.kind = "batch1d", .sizes = sizes});
    cases.push_back({.kind = "group", .sizes = sizes, .groups = sizes[1] % 2 == 0 ? 2 : 1});
    if (sizes.size() == 3) {
      cases.push_back({.kind = "instance1d", .sizes = sizes});
    }
  }
  for (const Sizes& sizes : {Sizes{2, 3, 2, 3, 4}, Sizes{1, 2, 3, 1, 5}}) {
    cases.push_back({.kind = "batch3d", .sizes = sizes});
    cases.push_back({.kind = "instance3d", .sizes = sizes});
    cases.push_back({.kind = "group", .sizes = sizes, .groups = 1});
  }
  return cases;
}

/// `values` as numbers of `dtype`.
Tensor rounded(const Tensor& values, DType dtype) {
  return to(values, dtype);
}

NormInputs inputs_for(const NormCase& c, DType dtype, DType parameters, double offset) {
  const NormSpec spec = spec_of(c);
  NormInputs in{.x = rounded(add(random_tensor(c.sizes, 1), offset), dtype),
                .dy = rounded(random_tensor(c.sizes, 2), dtype)};
  const bool biased = !starts_with(c, "rms") && !starts_with(c, "simple");
  const Sizes affine = affine_sizes(in.x, spec);
  if (c.affine && c.kind != "response") {
    in.weight = rounded(random_tensor(affine, 3), parameters);
    in.bias = biased && c.bias ? rounded(random_tensor(affine, 4), parameters) : Tensor{};
  }
  const bool keeps_statistics = starts_with(c, "batch") || starts_with(c, "instance") || c.kind == "ghost" ||
                                c.kind == "renorm" || c.kind == "frozen";
  if (keeps_statistics && c.track_running_stats) {
    in.running_mean = rounded(add(random_tensor({c.sizes[1]}, 5), offset), parameters);
    in.running_var = rounded(add(abs(random_tensor({c.sizes[1]}, 6)), 0.5), parameters);
  }
  return in;
}

/// Half a step of the result's own rounding, and a few of the arithmetic's, at the largest value that enters.
double tolerance(DType dtype, double scale) {
  const DType arithmetic = dtype == DType::float64 ? DType::float64 : DType::float32;
  return 0.51 * rounding_step(dtype, scale) + 12 * rounding_step(arithmetic, scale);
}

}  // namespace

TEST_CASE("norms: every layer × dtype × layout × mode × affine against the definition") {
  struct Types {
    DType input;
    DType parameters;
  };
  const Types kTypes[] = {{DType::float64, DType::float64},   {DType::float32, DType::float32},
                          {DType::bfloat16, DType::bfloat16}, {DType::bfloat16, DType::float32},
                          {DType::float16, DType::float16},   {DType::float16, DType::float32}};
  int cases = 0;
  for (NormCase c : catalogue()) {
    for (const Types& types : kTypes) {
      for (const bool affine : {true, false}) {
        for (const bool training : {true, false}) {
          c.affine = affine;
          c.training = training;
          const NormInputs in = inputs_for(c, types.input, types.parameters, 0.5);
          const NormValues expected = definition(c, in);
          double terms = 1;  // the results are sums and differences of such numbers
          for (const auto& [name, values] : expected) {
            terms = std::max(terms, largest(values));
          }
          for (const Layout layout : kLayouts) {
            const std::shared_ptr<nn::Norm> layer = make_layer(c, in, types.parameters);
            CAPTURE(test::to_string(c));
            CAPTURE(to_string(types.input));
            CAPTURE(to_string(types.parameters));
            CAPTURE(to_string(layout));
            for (const auto& [name, result] : run_layer(*layer, in, layout)) {
              CAPTURE(name);
              CHECK(distance(result, expected.at(name)) <= tolerance(result.dtype(), terms));
            }
            ++cases;
          }
        }
      }
    }
  }
  MESSAGE("cases against the definition: " << cases);
  CHECK(cases >= 3000);
}
