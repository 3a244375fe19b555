#include "base/error.h"
#include "core/allocator.h"
#include "core/factory.h"
#include "core/share.h"
#include "core/tape.h"
#include "lab/compare/comparison.h"
#include "session/interrupt.h"
#include "train/evaluate.h"
#include "train/freeze.h"
#include "train/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <new>

namespace norma::lab {

namespace {

/// Settings that were tried, and the error that refused them; "" if none did.
struct Tried {
  Settings settings;
  std::string refusal;
};

/// The text of an Error from f, "" for none. Running out of memory is no refusal: it is a result.
template <class F>
std::string refusal_of(F&& f) {
  try {
    f();
  } catch (const OutOfMemory&) {
  } catch (const Error& error) {
    return error.what();
  } catch (const std::bad_alloc&) {
  }
  return "";
}

class Rehearsal {
 public:
  explicit Rehearsal(const Comparison& comparison) : comparison_(comparison) {}

  /// The Error that refuses a cell; "" if none does.
  std::string refusal(const Settings& cell) {
    const train::Recipe recipe = recipe_of(comparison_.recipe, cell);
    const std::string refused = refusal_of([&] {
      train::check_recipe(recipe);
      train::make_train_loader(recipe, dataset(cell), /* workers= */ 0);
    });
    if (!refused.empty()) {
      return refused;
    }
    // Inputs are refused or taken whatever the seed and lr, and 2 images stand for more.
    Settings key = cell;
    key.seed = 0;
    key.lr = 0;
    key.batch_size = std::min<int64_t>(fewest_images(cell, recipe), 2);
    const auto known = std::ranges::find(networks_, key, &Tried::settings);
    if (known != networks_.end()) {
      return known->refusal;
    }
    const auto try_step = [&] { step(key, recipe, *dataset(cell), comparison_.source_classes.empty()); };
    return networks_.emplace_back(Tried{.settings = key, .refusal = refusal_of(try_step)}).refusal;
  }

  void run() {
    for (const Cell& cell : comparison_.cells) {
      dataset(cell);
    }
    for (const Cell& cell : comparison_.cells) {
      if (train::interrupted()) {
        break;
      }
      // A finished cell shows that its values work. Those of other parts were tried before the cells were dealt out.
      const bool tried = cell.state == CellState::finished || !is_here(cell);
      trials_.push_back({.settings = cell, .refusal = tried ? std::string() : refusal(cell)});
    }
    allocator(default_device()).empty_cache();
    for (const Tried& trial : trials_) {
      const Settings& one = trial.settings;
      check_some([&](const Settings& other) { return other.model == one.model && other.norm == one.norm; },
                 fmt::format("{} with norm {}", one.model, train::norm_label(one.norm, comparison_.recipe)));
    }
    for (const Tried& trial : trials_) {
      for (const Axis& axis : further_axes()) {
        const std::string value = axis.value(trial.settings);
        check_some([&](const Settings& other) { return axis.value(other) == value; },
                   fmt::format("{} {}", axis.name, value));
      }
    }
  }

 private:
  /// Throws Error when the data cannot be read.
  const std::shared_ptr<const data::Dataset>& dataset(const Settings& cell) {
    std::shared_ptr<const data::Dataset>& train_set = datasets_[{cell.dataset, cell.option("train-images")}];
    if (!train_set) {
      const train::Recipe recipe = recipe_of(comparison_.recipe, cell);
      train_set = train::make_dataset(recipe, data::Split::train);
      train::make_test_loader(recipe, train::make_dataset(recipe, data::Split::test), /* workers= */ 0);
    }
    return train_set;
  }

  /// The images of the process with the fewest: as many as its batch norms see, unless they see those of all.
  [[nodiscard]] int64_t fewest_images(const Settings& cell, const train::Recipe& recipe) const {
    const int64_t processes = comparison_.environment.processes;
    const bool shared = recipe.sync_bn || cell.norm.find("sync_batch") != std::string::npos;
    return shared ? cell.batch_size : share_of(cell.batch_size, processes - 1, processes).count;
  }

  /// A step of so many images as the cell's batch has. `has_file`: the weights to start from are there; else they are
  /// yet to be trained.
  static void step(const Settings& cell, const train::Recipe& recipe, const data::Dataset& train_set, bool has_file) {
    const auto model = train::make_model(recipe, train_set.info().num_classes());
    if (has_file && !recipe.initial_checkpoint.empty()) {
      train::load_initial_weights(*model, recipe);
    }
    train::freeze(*model, recipe);
    if (cell.option(kWeights) == kRecalibrated) {
      train::check_recalibrates(*model);
    }
    const train::Precision precision = train::precision_of(recipe);
    const Tensor black =
        zeros({cell.batch_size, train::kImageChannels, recipe.image_size, recipe.image_size},
              {.format = recipe.channels_last ? MemoryFormat::channels_last : MemoryFormat::contiguous});
    const NoGradGuard no_grad;
    const train::PrecisionScope scope(precision);
    (*model)(train::convert_input(black, precision));
  }

  /// Throws the first refusal unless a trial of these succeeded.
  void check_some(const std::function<bool(const Settings&)>& among, const std::string& name) const {
    const Tried* first = nullptr;
    for (const Tried& trial : trials_) {
      if (among(trial.settings)) {
        if (trial.refusal.empty()) {
          return;
        }
        first = first == nullptr ? &trial : first;
      }
    }
    if (first != nullptr) {
      fail("compare", "{}: {}", name, first->refusal);
    }
  }

  const Comparison& comparison_;
  /// By dataset and number of training images.
  std::map<std::pair<std::string, std::string>, std::shared_ptr<const data::Dataset>> datasets_;
  std::vector<Tried> networks_;
  std::vector<Tried> trials_;
};

}  // namespace

void rehearse_comparison(const Comparison& comparison) {
  Rehearsal(comparison).run();
}

void rehearse_cell(const Comparison& comparison, const Settings& cell) {
  if (const std::string refusal = Rehearsal(comparison).refusal(cell); !refusal.empty()) {
    throw Error(refusal);
  }
}

}  // namespace norma::lab
