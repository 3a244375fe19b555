#include "lab/judge/norms.h"

#include "base/error.h"
#include "base/nearest_name.h"
#include "core/copy.h"
#include "core/factory.h"
#include "core/tape.h"
#include "nn/norm/factory.h"
#include "ops/norm/norm.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/copy.h"

#include <fmt/format.h>

#include <algorithm>

namespace norma::lab::judge {

namespace {

using Length = Parameter::Length;

/// The weights keep outputs as large as xhat.
const Parameter kWeight{.name = "weight"};
const Parameter kBias{.name = "bias", .low = -0.5, .width = 1};

/// All axes but the first.
Axes behind_first(int64_t rank) {
  Axes axes;
  for (int64_t axis = 1; axis < rank; ++axis) {
    axes.push_back(axis);
  }
  return axes;
}

std::function<NormSpec(int64_t)> always(const NormSpec& spec) {
  return [spec](int64_t) { return spec; };
}

Norm group_norm_of(int64_t groups) {
  return {.name = fmt::format("group:{}", groups),
          .sizes = {6, 7 * groups, 17, 19},
          .one_each = Sizes{3, groups, 1, 1},
          .parameters = {kWeight, kBias},
          .spec = [groups](int64_t rank) {
            return NormSpec{.reduce = behind_first(rank), .affine = {1}, .groups = groups};
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
       .spec = [](int64_t rank) { return NormSpec{.reduce = behind_first(rank), .affine = behind_first(rank)}; },
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

// Inputs are small: a formula is differentiated for each number of its output.
std::vector<Norm> norms_of_a_formula() {
  const Sizes sizes = {5, 6, 4, 3};
  const std::vector<double> zeros(6, 0);
  const std::vector<double> ones(6, 1);
  const Parameter gain{.name = "gain", .length = Length::first_axis};
  const auto standardized = [](std::optional<double> gamma) {
    return [gamma](const Tensor& x, const Tensors& p, Statistics statistics, double eps) {
      return standardize_weight(x, p[0], {.eps = eps, .statistics = statistics, .gamma = gamma});
    };
  };
  constexpr double kGamma = 1.7139588594436646;  // for relu
  return {
      {.name = "ghost_batch[sub_batch=2]",
       .sizes = sizes,
       .parameters = {kWeight, kBias},
       .formula = formula::ghost_batch_norm(2)},
      {.name = "batch_renorm",
       .sizes = sizes,
       .parameters = {kWeight, kBias},
       .formula = formula::batch_renorm(zeros, ones, /* r_max= */ 3, /* d_max= */ 5)},
      {.name = "evonorm_b0",
       .sizes = sizes,
       .one_each = Sizes{7, 5, 1, 1},
       .parameters = {kWeight, kBias, {.name = "v"}},
       .formula = formula::evo_norm_b0()},
      {.name = "evonorm_s0:2",
       .sizes = sizes,
       .one_each = Sizes{7, 2, 1, 1},
       .parameters = {kWeight, kBias, {.name = "v"}},
       .formula = formula::evo_norm_s0(2)},
      {.name = "frn",
       .sizes = sizes,
       .one_each = Sizes{7, 5, 1, 1},
       .has_statistics = false,
       .parameters = {kWeight, kBias, {.name = "tau", .low = -0.5}},
       .formula = formula::filter_response_norm()},
      {.name = "grn",
       .sizes = sizes,
       .one_each = Sizes{7, 5, 1, 1},
       .has_statistics = false,
       .parameters = {kWeight, kBias},
       .formula = formula::global_response_norm(),
       .relative = true},
      {.name = "local_response",
       .sizes = sizes,
       .one_each = Sizes{7, 1, 2, 1},
       .has_statistics = false,
       .formula = formula::local_response_norm(5),
       .relative = true},
      {.name = "dyt",
       .sizes = sizes,
       .why_not_one_each = "it has no sets",
       .has_statistics = false,
       .parameters = {kWeight, kBias, {.name = "alpha", .length = Length::one}},
       .formula = formula::dynamic_tanh(),
       .least_dx = 1},
      {.name = "derf",
       .sizes = sizes,
       .why_not_one_each = "it has no sets",
       .has_statistics = false,
       .parameters =
           {kWeight, kBias, {.name = "alpha", .length = Length::one}, {.name = "shift", .length = Length::one}},
       .formula = formula::dynamic_erf(),
       .least_dx = 1},
      {.name = "seednorm",
       .sizes = sizes,
       .one_each = Sizes{7, 1, 2, 1},
       .has_statistics = false,
       .parameters = {kWeight, {.name = "alpha"}, {.name = "beta", .low = -0.5}},
       .formula = formula::seed_norm()},
      {.name = "std_conv",
       .sizes = sizes,
       .parameters = {gain},
       .formula = formula::standardized_weight(),
       .apply = standardized({})},
      {.name = "scaled_std_conv",
       .sizes = sizes,
       .parameters = {gain},
       .formula = formula::standardized_weight(kGamma),
       .apply = standardized(kGamma)},
  };
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
    if (std::ranges::find(known, option) != known.end()) {
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
  std::vector<std::string> names;
  for (const Norm& norm : all_norms()) {
    names.push_back(short_name(norm));
  }
  return names;
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
  for (const Norm& norm : all_norms()) {
    if (short_name(norm) == name) {
      return norm;
    }
  }
  check(std::ranges::count(nn::norm_names(), name) == 0, "audit",
        "norms: {} has no definition in plain loops; check-norm --norms {} compares it with its own float64", name,
        name);
  fail("audit", "norms: {}", unknown_name("norm", name, norm_names()));
}

std::string_view to_string(Layout layout) {
  switch (layout) {
    case Layout::contiguous: return "contiguous";
    case Layout::channels_last: return "channels_last";
    case Layout::transposed: return "transposed";
  }
  return "?";
}

std::vector<Layout> layouts_of(int64_t rank) {
  return {Layout::contiguous, rank == 4 ? Layout::channels_last : Layout::transposed};
}

Tensor in_layout(const Tensor& x, Layout layout) {
  switch (layout) {
    case Layout::contiguous: return copy_of(x, MemoryFormat::contiguous);
    case Layout::channels_last: return copy_of(x, MemoryFormat::channels_last);
    case Layout::transposed: break;
  }
  Tensor copy = empty_strided(x.sizes(), {1, x.size(0)}, {.dtype = x.dtype(), .device = x.device()});
  copy_into(x, copy);
  return copy;
}

Tensor Inputs::parameter(std::string_view name) const {
  const auto found = std::ranges::find(parameters, name, &nn::NamedTensors::value_type::first);
  return found == parameters.end() ? Tensor() : found->second;
}

nn::NamedTensors Inputs::with_offset(double offset) const {
  nn::NamedTensors moved = parameters;
  for (auto& [name, x] : moved) {
    x = name == "weight" && offset != 0 ? add(to(x, DType::float64), offset) : x;
  }
  return moved;
}

Results apply(const Norm& norm, const Inputs& inputs, Statistics statistics, Layout layout) {
  const Tensor x = in_layout(inputs.x, layout).detach().set_requires_grad();
  Tensors leaves;
  Tensor y;
  if (norm.apply) {
    for (const auto& [name, parameter] : inputs.parameters) {
      leaves.push_back(parameter.detach().set_requires_grad());
    }
    y = norm.apply(x, leaves, statistics, inputs.eps);
  } else {
    const std::shared_ptr<nn::Module> layer = layer_for(norm, inputs, statistics);
    const nn::NamedTensors parameters = layer->named_parameters();
    for (const auto& [name, unused] : inputs.parameters) {
      leaves.push_back(std::ranges::find(parameters, name, &nn::NamedTensors::value_type::first)->second);
    }
    y = (*layer)(x);
  }
  y.backward(in_layout(inputs.dy, layout));
  Results results{.y = y.detach(), .dx = x.grad(), .gradients = {}};
  for (const Tensor& leaf : leaves) {
    results.gradients.push_back(leaf.grad());
  }
  return results;
}

}  // namespace norma::lab::judge
