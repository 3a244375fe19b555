#include "lab/judge/norms.h"

#include "base/error.h"
#include "base/lists.h"
#include "base/nearest_name.h"
#include "core/copy.h"
#include "core/factory.h"
#include "core/random.h"
#include "core/tape.h"
#include "data/safetensors.h"
#include "nn/norm/factory.h"
#include "ops/norm/norm.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/copy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace norma::lab::judge {

namespace {

using Length = Parameter::Length;

/// The weights keep outputs as large as xhat.
const Parameter kWeight{.name = "weight"};
const Parameter kBias{.name = "bias", .low = -0.5, .width = 1};

std::function<NormSpec(int64_t)> always(const NormSpec& spec) {
  return [spec](int64_t) { return spec; };
}

Norm group_norm_of(int64_t groups) {
  return {.name = fmt::format("group:{}", groups),
          .sizes = {6, 7 * groups, 17, 19},
          .one_each = Sizes{3, groups, 1, 1},
          .parameters = {kWeight, kBias},
          .spec = [groups](int64_t rank) {
            return NormSpec{.reduce = axes_from(1, rank), .affine = {1}, .groups = groups};
          }};
}

// Each of these is one normalize(). Sizes are odd: sets above and below the blocks that the kernels sum in, and no
// multiples of a vector's width.
std::vector<Norm> norms_of_one_spec() {
  return {
      {.name = "batch",
       .sizes = {16, 12, 18, 17},
       .parameters = {kWeight, kBias},
       .spec = always({.reduce = {0, 2, 3}, .affine = {1}})},
      {.name = "layer",
       .sizes = {13, 4400},
       .one_each = Sizes{9, 1},
       .parameters = {kWeight, kBias},
       .spec = [](int64_t rank) { return NormSpec{.reduce = axes_from(1, rank), .affine = axes_from(1, rank)}; },
       .apply =
           [](const Tensor& x, const Tensors& p, Statistics statistics, double eps) {
             return layer_norm(x, p[0].sizes(), p[0], p[1], {.eps = eps, .statistics = statistics});
           }},
      {.name = "layer2d",
       .sizes = {4, 75, 14, 13},
       .one_each = Sizes{2, 1, 3, 5},
       .parameters = {kWeight, kBias},
       .spec = always({.reduce = {1}, .affine = {1}})},
      group_norm_of(4),
      {.name = "instance",
       .sizes = {6, 7, 37, 31},
       .parameters = {kWeight, kBias},
       .spec = always({.reduce = {2, 3}, .affine = {1}})},
      {.name = "rms2d",
       .sizes = {4, 75, 14, 13},
       .one_each = Sizes{2, 1, 3, 5},
       .has_statistics = false,
       .parameters = {kWeight},
       .spec = always({.reduce = {1}, .affine = {1}, .centring = Centring::none})},
      {.name = "simple2d",
       .sizes = {4, 75, 14, 13},
       .parameters = {kWeight},
       .spec = always({.reduce = {1}, .affine = {1}, .centring = Centring::deviation, .correction = 1})},
  };
}

/// Inputs are small: a formula is differentiated for each number of its output.
Norm by_formula(const std::string& name, const std::vector<Parameter>& parameters, formula::Formula formula,
                const std::optional<Sizes>& one_each = {}, bool has_statistics = true) {
  return {.name = name,
          .sizes = {5, 6, 4, 3},
          .one_each = one_each,
          .has_statistics = has_statistics,
          .parameters = parameters,
          .formula = std::move(formula)};
}

Norm relative(Norm norm) {
  norm.relative = true;
  return norm;
}

Norm without_sets(Norm norm) {
  norm.why_not_one_each = "it has no sets";
  norm.has_statistics = false;
  norm.least_dx = 1;
  return norm;
}

Norm standardized(const std::string& name, std::optional<double> gamma) {
  Norm norm = by_formula(name, {{.name = "gain", .length = Length::first_axis}}, formula::standardized_weight(gamma));
  norm.apply = [gamma](const Tensor& x, const Tensors& p, Statistics statistics, double eps) {
    return standardize_weight(x, p[0], {.eps = eps, .statistics = statistics, .gamma = gamma});
  };
  return norm;
}

std::vector<Norm> norms_of_a_formula() {
  const std::vector<double> zeros(6, 0);
  const std::vector<double> ones(6, 1);
  const Parameter v{.name = "v"};
  const Parameter tau{.name = "tau", .low = -0.5};
  const Parameter alpha{.name = "alpha"};
  const Parameter one_alpha{.name = "alpha", .length = Length::one};
  const Parameter one_shift{.name = "shift", .length = Length::one};
  const Parameter beta{.name = "beta", .low = -0.5};
  constexpr double kGamma = 1.7139588594436646;  // for relu
  return {
      by_formula("ghost_batch[sub_batch=2]", {kWeight, kBias}, formula::ghost_batch_norm(2)),
      by_formula("batch_renorm", {kWeight, kBias}, formula::batch_renorm(zeros, ones, /* r_max= */ 3, /* d_max= */ 5)),
      by_formula("evonorm_b0", {kWeight, kBias, v}, formula::evo_norm_b0(), Sizes{7, 5, 1, 1}),
      by_formula("evonorm_s0:2", {kWeight, kBias, v}, formula::evo_norm_s0(2), Sizes{7, 2, 1, 1}),
      by_formula("frn", {kWeight, kBias, tau}, formula::filter_response_norm(), Sizes{7, 5, 1, 1}, false),
      relative(by_formula("grn", {kWeight, kBias}, formula::global_response_norm(), Sizes{7, 5, 1, 1}, false)),
      relative(by_formula("local_response", {}, formula::local_response_norm(5), Sizes{7, 1, 2, 1}, false)),
      without_sets(by_formula("dyt", {kWeight, kBias, one_alpha}, formula::dynamic_tanh())),
      without_sets(by_formula("derf", {kWeight, kBias, one_alpha, one_shift}, formula::dynamic_erf())),
      by_formula("seednorm", {kWeight, alpha, beta}, formula::seed_norm(), Sizes{7, 1, 2, 1}, false),
      standardized("std_conv", {}),
      standardized("scaled_std_conv", kGamma)};
}

/// Without groups and options.
std::string short_name(const Norm& norm) {
  return norm.name.substr(0, norm.name.find_first_of(":["));
}

/// The layer that a norm's name asks for, with the inputs' parameters in their dtype.
std::shared_ptr<nn::Module> layer_for(const Norm& norm, const Inputs& inputs, Statistics statistics) {
  nn::NormChoice choice = nn::parse_norm(norm.name);
  const std::vector<std::string>& known = nn::norm_definition(choice.name).options;
  for (const auto& [option, value] : {std::pair("eps", fmt::format("{}", inputs.eps)),
                                      {"statistics", std::string(to_string(statistics))},
                                      {"track_running_stats", "false"}}) {
    if (is_in(known, option)) {
      choice.options[option] = value;
    }
  }
  const std::shared_ptr<nn::Module> layer = nn::make_norm(choice, inputs.x.size(1));
  if (inputs.x.dtype() == DType::float64) {
    layer->to(DType::float64);
  } else {
    layer->parameters_to(inputs.x.dtype());  // statistics stay in float32
  }
  layer->load_state_dict(inputs.parameters, {.strict = false});
  return layer;
}

/// A norm with a zero-centred weight, or with a set for each group of channels.
std::optional<Norm> with_options(const std::string& name) {
  const auto base = std::ranges::find(all_norms(), name.substr(0, std::min(name.find('['), name.size())), &Norm::name);
  if (base == all_norms().end()) {
    return std::nullopt;
  }
  const nn::NormChoice choice = nn::parse_norm(name);
  if (std::ranges::any_of(choice.options,
                          [](const auto& of) { return of.first != "offset" && of.first != "groups"; })) {
    return std::nullopt;
  }
  Norm norm = *base;
  norm.name = name;
  norm.weight_offset = choice.flag("offset", false) ? 1 : 0;
  if (const int64_t groups = choice.count("groups", 1); groups > 1) {
    constexpr int64_t kChannelsOfGroup = 15;
    norm.sizes[1] = kChannelsOfGroup * groups;
    norm.one_each = Sizes{2, groups, 3, 5};
    norm.spec = [spec = norm.spec, groups](int64_t rank) {
      NormSpec grouped = spec(rank);
      grouped.groups = groups;
      return grouped;
    };
  }
  return norm;
}

// The random numbers have a seed and two streams, which come after the stream of x.
constexpr uint64_t kSeed = 20;
constexpr uint64_t kGradientStream = 1;
constexpr uint64_t kParameterStreams = 2;

/// offset + deviation · N(0, 1)
Case normal_case(const std::string& name, const std::string& column, const std::string& description, double offset = 0,
                 double deviation = 1, double largest = 10) {
  return {.name = name,
          .column = column,
          .description = description,
          .offset = offset,
          .deviation = deviation,
          .largest = largest,
          .value = [=](const Draw& draw) { return offset + deviation * draw.normal; }};
}

Case offset_case(const std::string& name, double offset) {
  return normal_case("offset_" + name, name, fmt::format("N({}, 1)", name), offset, 1, offset + 10);
}

Case huge_case(const std::string& name, double scale) {
  return normal_case("huge_" + name, "huge", fmt::format("N(0, 1) times {}: the squares overflow float32", name), 0,
                     scale, 5 * scale);
}

/// Another one, with these numbers.
Case with_values(Case one, std::function<double(const Draw&)> value) {
  one.value = std::move(value);
  return one;
}

/// N(0, 1) with a bad number at two places.
Case bad_case(const std::string& name, const std::string& what, double bad) {
  return with_values(normal_case(name, "", fmt::format("N(0, 1) with {} at two places", what)),
                     [bad](const Draw& draw) {
                       return draw.element == draw.numel / 3 || draw.element + 1 == draw.numel ? bad : draw.normal;
                     });
}

Case published(Case one, const Sizes& sizes, const Sizes& quick, bool only_float32 = false) {
  one.published = sizes;
  one.published_quick = quick;
  one.only_float32 = only_float32;
  return one;
}

std::vector<Case> make_cases() {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Case underflow =
      normal_case("underflow", "tiny", "N(0, 1) times 1e-25, eps 0: the squares underflow float32", 0, 1e-25);
  underflow.eps = 0;
  Case one_element = normal_case("one_element", "constant", "N(0, 1), one element in each set");
  one_element.one_element = true;
  return {
      offset_case("0", 0),
      offset_case("1e2", 1e2),
      offset_case("1e4", 1e4),
      offset_case("1e6", 1e6),
      with_values(normal_case("constant", "constant", "every set constant: 0.1, 0.2, 0.3, …", 0, 1, 2000),
                  [](const Draw& draw) { return 0.1 * static_cast<double>(draw.set % 10000 + 1); }),
      with_values(normal_case("constant_1e10", "constant", "all elements 1e10", 0, kInfinity, 1e10),
                  [](const Draw&) { return 1e10; }),
      normal_case("tiny_variance", "tiny", "N(0, 1) times 1e-6: the variance is far below eps", 0, 1e-6),
      underflow,
      one_element,
      huge_case("1e19", 1e19),
      huge_case("1e30", 1e30),
      huge_case("5e37", 5e37),
      bad_case("nan", "NaN", kNaN),
      bad_case("inf", "infinity", kInfinity),
      published(with_values(normal_case("rand_100", "published", "100 values in [0, 1) plus 1e4 (NNlib.jl 452)", 1e4,
                                        0.29, 1e4 + 1),
                            [](const Draw& draw) { return 1e4 + draw.uniform; }),
                {1, 100}, {1, 100}),
      published(with_values(normal_case("two_values", "published",
                                        "[-1.83965693, -1.82964566]: the outputs are ±0.8454271584, the gradient of "
                                        "their sum is 0 (OneFlow 6149)",
                                        1.83, 0.005),
                            [](const Draw& draw) { return draw.element == 0 ? -1.83965693 : -1.82964566; }),
                {1, 2}, {1, 2}),
      published(normal_case("randn_1024x32768", "published",
                            "rows of 32768 from N(100, 1e-4): E[x²] - E[x]² makes the variance 0 (pytorch 40302)", 100,
                            0.01, 101),
                {1024, 32768}, {16, 32768}, /* only_float32= */ true),
      published(normal_case("layer_16x224x224", "published", "layer norm of N(0, 1) over (16, 224, 224)"),
                {4, 16, 224, 224}, {1, 16, 224, 224})};
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

const std::vector<Norm>& all_norms() {
  static const std::vector<Norm> norms = [] {
    std::vector<Norm> all = norms_of_one_spec();
    std::ranges::move(norms_of_a_formula(), std::back_inserter(all));
    return all;
  }();
  return norms;
}

std::vector<std::string> norm_names() {
  return mapped(all_norms(), short_name);
}

std::optional<Norm> find_norm(const std::string& name) {
  const auto norm = std::ranges::find(all_norms(), name, &Norm::name);
  if (norm != all_norms().end()) {
    return *norm;
  }
  if (name.starts_with("group:")) {
    const nn::NormChoice choice = nn::parse_norm(name);
    return choice.options.empty() ? std::optional(group_norm_of(*choice.groups)) : std::nullopt;
  }
  return with_options(name);
}

Norm norm_called(const std::string& name) {
  if (std::optional<Norm> norm = find_norm(name)) {
    return *norm;
  }
  const auto of_short_name = std::ranges::find(all_norms(), name, short_name);
  if (of_short_name != all_norms().end()) {
    return *of_short_name;
  }
  check(std::ranges::count(nn::norm_names(), name) == 0, "audit",
        "norms: {} has no definition in plain loops; check-norm --norms {} compares it with its own float64", name,
        name);
  fail("audit", "norms: {}", unknown_name("norm", name, norm_names()));
}

std::string_view to_string(Layout layout) {
  return layout == Layout::contiguous ? "contiguous" : layout == Layout::channels_last ? "channels_last" : "transposed";
}

std::vector<Layout> layouts_of(int64_t rank) {
  return {Layout::contiguous, rank == 4 ? Layout::channels_last : Layout::transposed};
}

Tensor in_layout(const Tensor& x, Layout layout) {
  if (layout != Layout::transposed) {
    return copy_of(x, layout == Layout::contiguous ? MemoryFormat::contiguous : MemoryFormat::channels_last);
  }
  Tensor copy = empty_strided(x.sizes(), {1, x.size(0)}, {.dtype = x.dtype(), .device = x.device()});
  copy_into(x, copy);
  return copy;
}

Tensor Inputs::parameter(std::string_view name) const {
  return data::tensor_named(parameters, name);
}

nn::NamedTensors Inputs::with_offset(double offset) const {
  nn::NamedTensors moved = parameters;
  for (auto& [name, values] : moved) {
    values = name == "weight" && offset != 0 ? add(to(values, DType::float64), offset) : values;
  }
  return moved;
}

Results apply(const Norm& norm, const Inputs& inputs, Statistics statistics, Layout layout) {
  const Tensor x = in_layout(inputs.x, layout).detach().set_requires_grad();
  Tensors leaves;
  Tensor y;
  if (norm.apply) {
    leaves = mapped(inputs.parameters, [](const auto& one) { return one.second.detach().set_requires_grad(); });
    y = norm.apply(x, leaves, statistics, inputs.eps);
  } else {
    const std::shared_ptr<nn::Module> layer = layer_for(norm, inputs, statistics);
    const nn::NamedTensors parameters = layer->named_parameters();
    leaves = mapped(inputs.parameters, [&](const auto& one) { return data::tensor_named(parameters, one.first); });
    y = (*layer)(x);
  }
  y.backward(in_layout(inputs.dy, layout));
  Results results{.y = y.detach(), .dx = x.grad(), .gradients = {}};
  results.gradients = mapped(leaves, [](const Tensor& leaf) { return leaf.grad(); });
  return results;
}

const std::vector<Case>& all_cases() {
  static const std::vector<Case> cases = make_cases();
  return cases;
}

std::vector<std::string> case_names() {
  return mapped(all_cases(), &Case::name);
}

const Case& case_called(std::string_view name) {
  const auto found = std::ranges::find(all_cases(), name, &Case::name);
  check(found != all_cases().end(), "audit", "{}", unknown_name("case", name, case_names()));
  return *found;
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
