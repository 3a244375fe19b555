#include "nn/norm_cases.h"

using namespace norma;
using namespace norma::test;

namespace {

/// The norms that are more than one normalize(): odd sizes, numbers of pixels and of channels around the vector width,
/// one image, one channel, one pixel. With every option that the functions have.
void add_composed(std::vector<NormCase>& cases) {
  const Sizes kImages[] = {{3, 5, 4, 3}, {2, 33, 1, 2}, {4, 1, 3, 5},  {1, 8, 3, 7},  {2, 31, 3, 3},
                           {2, 3, 4, 8}, {2, 3, 1, 31}, {2, 2, 3, 11}, {1, 67, 3, 5}, {2, 2, 9, 17}};
  const Sizes kPixel = {6, 7, 1, 1};
  const Sizes kOtherRanks[] = {{3, 4, 9}, {2, 3, 2, 3, 3}};
  for (const char* kind : {"evonorm_b0", "evonorm_s0", "frn", "grn", "dyt"}) {
    for (const Sizes& sizes : kImages) {
      cases.push_back({.kind = kind, .sizes = sizes});
    }
    cases.push_back({.kind = kind, .sizes = kPixel});
    for (const Sizes& sizes : kOtherRanks) {
      cases.push_back({.kind = kind, .sizes = sizes});
    }
    cases.push_back({.kind = kind, .sizes = kImages[0], .bias = false});
    cases.push_back({.kind = kind, .sizes = kImages[0], .eps = 0.1});
  }
  for (const Sizes& sizes : kImages) {
    cases.push_back({.kind = "evonorm_s0", .sizes = sizes, .groups = sizes[1]});
  }
  cases.push_back({.kind = "evonorm_s0", .sizes = {3, 6, 3, 5}, .groups = 2});
  cases.push_back({.kind = "evonorm_s0", .sizes = {2, 33, 1, 3}, .groups = 3});
  cases.push_back({.kind = "evonorm_b0", .sizes = kImages[0], .momentum = 0.7});
  for (const Sizes& sizes : {kImages[0], kImages[3], kPixel}) {
    cases.push_back({.kind = "evonorm_b0", .sizes = sizes, .track_running_stats = false});
    cases.push_back({.kind = "frn", .sizes = sizes, .threshold = false});
  }
  for (const Sizes& sizes : {Sizes{7, 33}, Sizes{3, 5, 4}, Sizes{2, 3, 4, 31}, Sizes{2, 3, 4, 1}}) {
    cases.push_back({.kind = "dyt", .sizes = sizes, .axis = -1});
  }
  cases.push_back({.kind = "dyt", .sizes = {7, 33}});

  for (const Sizes& sizes : {kImages[0], kImages[1], kImages[2], kImages[4], kImages[8], kImages[9], kPixel,
                             kOtherRanks[0], kOtherRanks[1]}) {
    for (const int64_t window : {1, 2, 3, 4, 12}) {
      cases.push_back(
          {.kind = "response", .sizes = sizes, .window = window, .response = {.alpha = 2, .beta = 0.6, .k = 0.5}});
    }
    for (const double beta : {0.5, 0.75, 1.0, -0.5}) {
      cases.push_back({.kind = "response", .sizes = sizes, .response = {.alpha = 3, .beta = beta, .k = 2}});
    }
  }
}

/// Kernels of several sizes with and without groups; one image, one pixel.
void add_convolutions(std::vector<NormCase>& cases) {
  for (const char* kind : {"std_conv", "scaled_std_conv"}) {
    cases.push_back({.kind = kind, .sizes = {2, 4, 5, 3}});
    cases.push_back({.kind = kind, .sizes = {1, 8, 3, 7}, .groups = 2, .stride = 2});
    cases.push_back({.kind = kind, .sizes = {2, 33, 4, 3}, .kernel = 1});
    cases.push_back({.kind = kind, .sizes = {3, 7, 1, 1}});
    cases.push_back({.kind = kind, .sizes = {2, 1, 6, 5}, .out_channels = 1, .kernel = Pair(5, 3)});
    cases.push_back({.kind = kind, .sizes = {2, 3, 9, 8}, .groups = 3, .out_channels = 3, .kernel = 7});
    cases.push_back({.kind = kind, .sizes = {2, 3, 9, 8}, .kernel = 4, .stride = Pair(4, 2)});
  }
}

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
  add_composed(cases);
  add_convolutions(cases);
  return cases;
}

/// `values` as numbers of `dtype`.
Tensor rounded(const Tensor& values, DType dtype) {
  return to(values, dtype);
}

Sizes output_sizes(const NormCase& c) {
  if (!is_convolution(c)) {
    return c.sizes;
  }
  const Conv2dOptions options = convolution_of(c);
  const auto size = [](int64_t in, int64_t kernel, int64_t stride, int64_t padding) {
    return (in + 2 * padding - kernel) / stride + 1;
  };
  return {c.sizes[0], c.out_channels, size(c.sizes[2], c.kernel.h, options.stride.h, options.padding.h),
          size(c.sizes[3], c.kernel.w, options.stride.w, options.padding.w)};
}

NormInputs inputs_for(const NormCase& c, DType dtype, DType parameters, double offset) {
  const NormSpec spec = spec_of(c);
  NormInputs in{.x = rounded(add(random_tensor(c.sizes, 1), offset), dtype),
                .dy = rounded(random_tensor(output_sizes(c), 2), dtype)};
  if (is_convolution(c)) {
    in.weight = rounded(random_tensor({c.out_channels, c.sizes[1] / c.groups, c.kernel.h, c.kernel.w}, 3), parameters);
    in.bias = c.affine ? rounded(random_tensor({c.out_channels}, 4), parameters) : Tensor{};
    in.own = c.kind == "scaled_std_conv" ? rounded(random_tensor({c.out_channels, 1, 1, 1}, 7), parameters) : Tensor{};
    return in;
  }
  if (is_composed(c)) {
    const Sizes channels{channels_of(c)};
    in.weight = c.affine ? rounded(random_tensor(channels, 3), parameters) : Tensor{};
    in.bias = c.affine && c.bias ? rounded(random_tensor(channels, 4), parameters) : Tensor{};
    if (const std::string own = own_parameter(c); !own.empty()) {
      // a threshold near the middle of the values
      const Tensor values = random_tensor(own == "alpha" ? Sizes{1} : channels, 7);
      in.own = rounded(mul(values, own == "tau" ? 0.3 : 1), parameters);
    }
    if (c.kind == "evonorm_b0" && c.track_running_stats) {
      in.running_var = rounded(add(abs(random_tensor(channels, 6)), 0.5), parameters);
    }
    return in;
  }
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

/// Half a step of the result's own rounding, and a few of the arithmetic's, at the largest value that enters. A
/// convolution takes a weight that is itself rounded, which is up to one step more.
double tolerance(const NormCase& c, DType dtype, double scale) {
  const DType arithmetic = dtype == DType::float64 ? DType::float64 : DType::float32;
  return (is_convolution(c) ? 1.51 : 0.51) * rounding_step(dtype, scale) + 12 * rounding_step(arithmetic, scale);
}

}  // namespace

TEST_CASE("norms: every layer × dtype × layout × mode × affine against the definition" *
          doctest::test_suite("slow-emulated")) {
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
      if (is_convolution(c) && types.input != types.parameters) {
        continue;  // conv2d() wants one dtype
      }
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
            const std::shared_ptr<nn::Module> layer = make_layer(c, in, types.parameters);
            CAPTURE(test::to_string(c));
            CAPTURE(to_string(types.input));
            CAPTURE(to_string(types.parameters));
            CAPTURE(to_string(layout));
            for (const auto& [name, result] : run_layer(*layer, in, layout)) {
              CAPTURE(name);
              CHECK(distance(result, expected.at(name)) <= tolerance(c, result.dtype(), terms));
            }
            ++cases;
          }
        }
      }
    }
  }
  MESSAGE("cases against the definition: " << cases);
  CHECK(cases >= 9000);
}
