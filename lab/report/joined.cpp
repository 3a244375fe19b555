#include "lab/report/joined.h"

#include "base/error.h"
#include "train/recipe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace norma::lab {

namespace {

/// Takes into `whole` what `part` has of it. False: both have the same cell.
bool take(Comparison& whole, Comparison part) {
  bool fits = true;
  for (size_t i = 0; i < part.cells.size(); ++i) {
    if (is_here(part.cells[i])) {
      fits &= !is_here(whole.cells[i]);
      whole.cells[i] = std::move(part.cells[i]);
    }
  }
  std::ranges::move(part.timings, std::back_inserter(whole.timings));
  std::ranges::move(part.tunings, std::back_inserter(whole.tunings));
  for (SourceNetwork& source : part.sources) {
    const auto known = std::ranges::find(whole.sources, source.model, &SourceNetwork::model);
    if (known == whole.sources.end()) {
      whole.sources.push_back(std::move(source));
    } else if (known->sha256 != source.sha256) {
      known->sha256.clear();
    }
  }
  std::ranges::move(part.parts, std::back_inserter(whole.parts));
  return fits;
}

}  // namespace

std::string plan_difference(const Comparison& a, const Comparison& b) {
  train::Recipe recipe = b.recipe;
  recipe.data_dir = a.recipe.data_dir;  // each machine has the data where it has them
  if (!a.initial_sha256.empty() && a.initial_sha256 == b.initial_sha256) {
    recipe.initial_checkpoint = a.recipe.initial_checkpoint;
  }
  if (const std::vector<std::string> lines = train::differences(a.recipe, recipe); !lines.empty()) {
    return lines.front();
  }
  const auto settings = [](const Cell& cell) -> const Settings& { return cell; };
  if (!std::ranges::equal(a.cells, b.cells, {}, settings, settings)) {
    return fmt::format("models, norms, seeds or other axes, {} runs → {}", a.cells.size(), b.cells.size());
  }
  if (a.initial_sha256 != b.initial_sha256) {
    return "contents of the file of initial-checkpoint";
  }
  if (a.source_classes != b.source_classes) {
    return fmt::format("classes of the networks that runs start from {} → {}", fmt::join(a.source_classes, ","),
                       fmt::join(b.source_classes, ","));
  }
  const std::optional<bool> exact = a.environment.exact_convolutions;
  if (exact && b.environment.exact_convolutions && exact != b.environment.exact_convolutions) {
    return *exact ? "convolutions exact → fast" : "convolutions fast → exact";
  }
  if (a.environment.processes != b.environment.processes) {  // by which batch norms have other statistics
    return fmt::format("number of processes {} → {}", a.environment.processes, b.environment.processes);
  }
  if (a.tune_lr != b.tune_lr) {
    return fmt::format("tune-lr {} → {}", a.tune_lr, b.tune_lr);
  }
  if (a.timing_rounds != b.timing_rounds) {
    return fmt::format("timing-rounds {} → {}", a.timing_rounds, b.timing_rounds);
  }
  return a.part_count == b.part_count ? "" : fmt::format("number of parts {} → {}", a.part_count, b.part_count);
}

Comparison joined(const std::vector<std::string>& names, std::vector<Comparison> parts) {
  std::map<int64_t, std::string> holders;
  for (size_t i = 0; i < parts.size(); ++i) {
    check(parts[i].part_count > 0, "report", "'{}' is no part of a comparison: merge the parts first, without it",
          names[i]);
    const std::string difference = plan_difference(parts.front(), parts[i]);
    check(difference.empty(), "report", "'{}' and '{}' are parts of different plans: {}", names.front(), names[i],
          difference);
    for (const PartOrigin& origin : parts[i].parts) {
      const auto [holder, is_new] = holders.emplace(origin.number, names[i]);
      check(is_new, "report", "'{}' and '{}' both hold part {} of {}: leave one of them out", holder->second, names[i],
            origin.number, parts[i].part_count);
    }
  }
  Comparison whole = std::move(parts.front());
  bool fits = true;
  for (size_t i = 1; i < parts.size(); ++i) {
    fits &= take(whole, std::move(parts[i]));
  }
  std::ranges::sort(whole.parts, {}, &PartOrigin::number);
  fits &= static_cast<int64_t>(whole.parts.size()) < whole.part_count || std::ranges::all_of(whole.cells, is_here);
  std::set<std::string> versions;
  for (const PartOrigin& origin : whole.parts) {
    versions.insert(origin.environment.norma);
  }
  check(fits, "report", "the parts were dealt out in different ways; they were run by Norma {}",
        fmt::join(versions, ", "));
  const PartOrigin& first = whole.parts.front();
  whole.environment = first.environment;
  whole.command = first.command;
  whole.date = first.date;
  // In the order of an undivided comparison.
  const auto first_cell = [&](const auto& is_of) {
    return std::ranges::find_if(whole.cells, is_of) - whole.cells.begin();
  };
  std::ranges::stable_sort(whole.timings, {}, [&](const Timing& timing) {
    return first_cell([&](const Cell& cell) { return timing_group(cell) == timing.group; });
  });
  std::ranges::stable_sort(whole.tunings, {}, [&](const Tuning& tuning) {
    return first_cell([&](const Cell& cell) { return same_but_seed(cell, tuning.settings); });
  });
  return whole;
}

}  // namespace norma::lab
