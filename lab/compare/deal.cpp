#include "lab/compare/deal.h"

#include "base/error.h"
#include "base/excerpt.h"
#include "base/parse_number.h"
#include "core/allocator.h"
#include "core/factory.h"
#include "core/tape.h"
#include "lab/compare/source.h"
#include "lab/compare/timing.h"
#include "lab/compare/tune.h"
#include "nn/module_scope.h"
#include "session/environment.h"
#include "train/recipe_option.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <map>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

namespace norma::lab {

namespace {

// Rates of two cores with AVX-512, within 15 % for ResNets and ConvNeXts at 32 and 224 pixels in batches of 2 to 64.
// Only their ratios matter to the deal.
constexpr int64_t kMultiplicationsPerNanosecond = 100;
constexpr int64_t kElementsPerNanosecond = 2;
constexpr int64_t kParameterNanoseconds = 1;   // of a step: the optimizer
constexpr int64_t kLayerNanoseconds = 50'000;  // of a step: what does not grow with the batch
constexpr int64_t kForwardAndBackward = 3;     // forward passes

/// The work of a forward pass.
class Work : public nn::ModuleObserver {
 public:
  void enter(const nn::Module& /*module*/) override {}
  void leave(const nn::Module& module, const Tensor& /*input*/, const Tensor& output) override {
    if (!output.defined() || module.named_modules().size() > 1) {
      return;
    }
    ++layers;
    elements += output.numel();
    for (const auto& [name, parameter] : module.named_parameters()) {
      if (parameter.rank() > 1) {  // of a convolution or a matrix: each output is a product over the other axes
        multiplications += output.numel() * (parameter.numel() / parameter.size(0));
      }
    }
  }

  int64_t layers = 0;
  int64_t elements = 0;
  int64_t multiplications = 0;
};

/// Nanoseconds of a network.
struct Nanoseconds {
  int64_t image = 0;  ///< forward
  int64_t step = 0;   ///< of a training step, beside its images
  int64_t half_passes_to_calibrate = 0;
};

Nanoseconds measure_work(const train::Recipe& recipe, int64_t classes) {
  constexpr int64_t kImages = 2;  // batch norm wants two where they have one pixel
  const auto model = train::make_model(recipe, classes);
  const train::Precision precision = train::precision_of(recipe);
  const Tensor images = zeros({kImages, train::kImageChannels, recipe.image_size, recipe.image_size});
  const NoGradGuard no_grad;
  const train::PrecisionScope scope(precision);
  Work work;
  (*model)(train::convert_input(images, precision));
  const int64_t width = recipe.precision == "float64" ? 2 : 1;
  return {.image = width *
                   (work.multiplications / kMultiplicationsPerNanosecond + work.elements / kElementsPerNanosecond) /
                   kImages,
          .step = width * model->parameter_count() * kParameterNanoseconds + work.layers * kLayerNanoseconds,
          .half_passes_to_calibrate = half_passes_to_calibrate(*model)};
}

/// The networks and data of a comparison, each looked at once.
class Estimate {
 public:
  explicit Estimate(const Comparison& comparison) : comparison_(comparison) {}

  int64_t step(const Cell& cell) {
    const Nanoseconds one = of(cell);
    return kForwardAndBackward * cell.batch_size * one.image + one.step;
  }
  int64_t run(const Cell& cell) {
    const Data& data = data_of(cell);
    const int64_t images = images_of(cell);
    const int64_t evaluations = (comparison_.telemetry ? 1 + (std::max<int64_t>(images, 1) - 1) / data.train : 1) +
                                (converts_norms(cell) ? 1 : 0);
    return batches_of(cell) * step(cell) + evaluations * data.test * of(cell).image + conversion(cell);
  }
  int64_t trials(const Cell& cell) {
    const int64_t batches = tuning_batches(batches_of(cell), comparison_.recipe.grad_accum_steps);
    return static_cast<int64_t>(tuning_factors().size()) * (batches * step(cell) + conversion(cell));
  }

 private:
  struct Data {
    int64_t train = 1;
    int64_t test = 0;
    int64_t classes = 0;
  };

  const Data& data_of(const Cell& cell) {
    const auto [known, is_new] = data_.try_emplace({cell.dataset, cell.option("train-images")});
    if (is_new) {
      const train::Recipe recipe = recipe_of(comparison_.recipe, cell);
      const auto test = train::make_dataset(recipe, data::Split::test);
      known->second = {
          .train = std::max<int64_t>(train::make_dataset(recipe, data::Split::train)->info().size, 1),
          .test = recipe.test_images > 0 ? std::min(recipe.test_images, test->info().size) : test->info().size,
          .classes = test->info().num_classes()};
    }
    return known->second;
  }
  int64_t images_of(const Cell& cell) {
    const train::Recipe& recipe = comparison_.recipe;
    return recipe.images > 0 ? recipe.images : recipe.epochs * data_of(cell).train;
  }
  int64_t conversion(const Cell& cell) {
    const Nanoseconds one = of(cell);
    return half_passes_of_conversion(cell, one.half_passes_to_calibrate) * comparison_.recipe.convert_batches *
           cell.batch_size * one.image / 2;
  }
  int64_t batches_of(const Cell& cell) { return images_of(cell) / cell.batch_size; }

  Nanoseconds of(const Cell& cell) {
    Settings key = cell;  // of cells with one network
    key.seed = 0;
    key.lr = 0;
    key.batch_size = 0;
    key.format = MemoryFormat::contiguous;
    const auto known = std::ranges::find(networks_, key, [](const auto& network) { return network.first; });
    if (known != networks_.end()) {
      return known->second;
    }
    Nanoseconds found;
    try {
      found = measure_work(recipe_of(comparison_.recipe, cell), data_of(cell).classes);
    } catch (const std::exception&) {  // it will fail when it runs
    }
    allocator(default_device()).empty_cache();
    return networks_.emplace_back(std::move(key), found).second;
  }

  const Comparison& comparison_;
  std::map<std::pair<std::string, std::string>, Data> data_;  ///< by dataset and number of training images
  std::vector<std::pair<Settings, Nanoseconds>> networks_;
};

/// For each cell the first one that it must stay with, which may be itself.
std::vector<size_t> first_of_each(const Comparison& comparison) {
  std::vector<size_t> first(comparison.cells.size());
  std::iota(first.begin(), first.end(), size_t{0});
  for (size_t i = 0; comparison.tune_lr && i < first.size(); ++i) {
    const auto same = std::ranges::find_if(comparison.cells,
                                           [&](const Cell& cell) { return same_but_seed(cell, comparison.cells[i]); });
    first[i] = static_cast<size_t>(same - comparison.cells.begin());
  }
  return first;
}

}  // namespace

PartOf parse_part(const std::string& text) {
  const size_t slash = text.find('/');
  const auto number = [&](std::string_view digits) { return parse_number<int64_t>(digits).value_or(0); };
  const PartOf part = slash == std::string::npos ? PartOf()
                                                 : PartOf{.number = number(std::string_view(text).substr(0, slash)),
                                                          .count = number(std::string_view(text).substr(slash + 1))};
  check(part.number >= 1 && part.number <= part.count, "compare",
        "part: expected K/N with K from 1 to N, as 2/4, got '{}'", excerpt(text));
  return part;
}

std::vector<int64_t> estimate_costs(const Comparison& comparison) {
  Estimate estimate(comparison);
  std::vector<int64_t> costs;
  for (const Cell& cell : comparison.cells) {
    costs.push_back(estimate.run(cell));
  }
  const auto first_cell = [&](const auto& is_of) -> size_t {
    return static_cast<size_t>(std::ranges::find_if(comparison.cells, is_of) - comparison.cells.begin());
  };
  for (const Settings& group : groups_to_time(comparison)) {  // timed where its first cell is
    const auto is_of = [&](const Cell& cell) { return timing_group(cell) == group; };
    for (const std::string& norm : norms_of(comparison, group)) {
      const size_t cell = first_cell([&](const Cell& other) { return is_of(other) && other.norm == norm; });
      costs[first_cell(is_of)] += comparison.timing_rounds * estimate.step(comparison.cells[cell]);
    }
  }
  const std::vector<size_t> first = first_of_each(comparison);
  for (size_t i = 0; comparison.tune_lr && i < costs.size(); ++i) {
    if (first[i] == i) {
      costs[i] += estimate.trials(comparison.cells[i]);
    }
  }
  return costs;
}

std::vector<int64_t> deal(const Comparison& comparison, int64_t count) {
  deal(comparison, std::vector<int64_t>(comparison.cells.size(), 1), count);  // refuses too many before they cost time
  return deal(comparison, estimate_costs(comparison), count);
}

std::vector<int64_t> deal(const Comparison& comparison, const std::vector<int64_t>& costs, int64_t count) {
  const std::vector<size_t> first = first_of_each(comparison);
  std::map<size_t, int64_t> together;  // the cost of each cell with those that stay with it
  for (size_t i = 0; i < first.size(); ++i) {
    together[first[i]] += costs[i];
  }
  check(count <= static_cast<int64_t>(together.size()), "compare",
        "part: expected at most {} parts for {} {}{}, got {}", together.size(), comparison.cells.size(),
        comparison.cells.size() == 1 ? "run" : "runs",
        together.size() < first.size() ? ", as seeds share their trials of learning rates" : "", count);
  std::vector<std::pair<size_t, int64_t>> order(together.begin(), together.end());
  std::ranges::stable_sort(order, std::greater<>(), [](const auto& item) { return item.second; });
  std::vector<std::pair<int64_t, int64_t>> loads;  // a load and its part: of equal ones the first part
  for (int64_t part = 1; part <= count; ++part) {
    loads.emplace_back(0, part);
  }
  std::vector<int64_t> parts(first.size());
  for (const auto& [cell, cost] : order) {
    auto& least = *std::ranges::min_element(loads);
    parts[cell] = least.second;
    least.first += std::max<int64_t>(cost, 1);  // so that every part gets one
  }
  for (size_t i = 0; i < first.size(); ++i) {
    parts[i] = parts[first[i]];
  }
  return parts;
}

void take_part(Comparison& comparison, const PartOf& part, const std::vector<int64_t>& dealt) {
  comparison.part_count = part.count;
  comparison.parts = {{.number = part.number,
                       .environment = comparison.environment,
                       .command = comparison.command,
                       .date = comparison.date}};
  for (size_t i = 0; i < dealt.size(); ++i) {
    if (dealt[i] != part.number) {
      comparison.cells[i].state = CellState::elsewhere;
    }
  }
}

}  // namespace norma::lab
