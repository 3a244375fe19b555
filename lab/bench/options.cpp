#include "base/error.h"
#include "base/nearest_name.h"
#include "lab/bench/benchmark.h"
#include "models/registry.h"
#include "nn/norm/factory.h"
#include "nn/norm/policy.h"
#include "train/recipe_option.h"

#include <fnmatch.h>

#include <algorithm>
#include <bit>
#include <set>

namespace norma::lab::bench {

namespace {

void check_known(std::string_view what, const std::string& name, const std::vector<std::string>& known) {
  check(std::find(known.begin(), known.end(), name) != known.end(), "bench", "{}", unknown_name(what, name, known));
}

bool is_pattern(const std::string& text) {
  return text == "all" || text.find_first_of("*?[") != std::string::npos;
}

/// True iff a norm of the networks takes the statistics of all processes.
bool shares_statistics(const BenchOptions& options) {
  std::vector<std::string> norms = options.norms;
  if (!options.recipe.norm_policy.empty()) {
    for (const nn::NormRule& rule :
         nn::parse_norm_policy(options.recipe.norm_policy, options.recipe.norm_policy_file).rules) {
      norms.push_back(rule.norm);
    }
  }
  return options.recipe.sync_bn || std::ranges::any_of(norms, [](const std::string& norm) {
           return !norm.empty() && nn::parse_norm(norm).name == "sync_batch";
         });
}

/// For several processes.
void check_processes(const BenchOptions& options) {
  constexpr auto op = "bench";
  check(expand_models(options.models).size() == 1 && options.norms.size() == 1 && !options.both_formats, op,
        "procs: expected one model with one norm in one format beside it");
  check(options.modes == std::vector{Mode::train}, op,
        "procs: expected --bench train beside it, since processes that infer tell each other nothing");
  check(!options.retry && !options.detail && !options.alternate, op,
        "procs: expected none of --retry, --detail and --alternate beside it");
  check(options.cuda_graph != train::GraphMode::on, op,
        "procs: expected no --cuda-graph on beside it, since gradients travel between processes");
  check(!shares_statistics(options), op,
        "procs: expected no sync-bn and no norm sync_batch beside it, whose messages a measured step does not have");
  std::set<int64_t> counts;
  for (const int64_t count : options.procs) {
    check(counts.insert(count).second, op, "procs: expected each number once, got {} twice", count);
    check(count <= options.recipe.batch_size, op,
          "procs: expected at most {}, the images of a batch (option -b, which counts those of all processes), got {}",
          options.recipe.batch_size, count);
  }
}

}  // namespace

std::vector<std::string> expand_models(const std::vector<std::string>& patterns) {
  const std::vector<std::string> known = models::model_names();
  std::vector<std::string> models;
  std::set<std::string> seen;
  const auto add = [&](const std::string& name) {
    if (seen.insert(name).second) {
      models.push_back(name);
    }
  };
  for (const std::string& pattern : patterns) {
    if (!is_pattern(pattern)) {
      check_known("model", models::network_of(pattern), known);
      add(pattern);
      continue;
    }
    const size_t before = seen.size();
    bool any = false;
    for (const std::string& name : known) {
      if (pattern == "all" || fnmatch(pattern.c_str(), name.c_str(), 0) == 0) {
        any = true;
        add(name);
      }
    }
    check(any || seen.size() > before, "bench", "model: expected a pattern that matches a model, got '{}'", pattern);
  }
  return models;
}

int64_t smaller_batch(int64_t batch_size) {
  if (batch_size <= 1) {
    return 0;
  }
  const auto base = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(batch_size - 1)));
  const int64_t step = std::max<int64_t>(base / 2, 1);
  return base + (batch_size - base - 1) / step * step;
}

void check_options(const BenchOptions& options) {
  constexpr auto op = "bench";
  expand_models(options.models);
  check(!options.models.empty(), op, "model: expected at least one");
  check(!options.norms.empty(), op, "norm: expected at least one");
  check(!options.modes.empty(), op, "bench: expected train, infer or both");
  for (const std::string& norm : options.norms) {
    if (!norm.empty()) {
      nn::parse_norm(norm);
    }
  }
  std::set<std::string> norms;
  for (const std::string& norm : options.norms) {
    check(norms.insert(norm).second, op, "norm: expected each once, got {} twice", norm.empty() ? "''" : norm);
  }
  check_range(op, "num-classes", options.num_classes, train::ranges::kClasses);
  check_range(op, "num-warm-iter", options.warm_steps, train::ranges::kStepsOrNone);
  check_range(op, "num-bench-iter", options.steps, train::ranges::kSteps);
  check(!options.fold || std::find(options.modes.begin(), options.modes.end(), Mode::infer) != options.modes.end(), op,
        "fold: expected --bench infer or both, since training needs the norms");
  check(!(options.alternate && options.retry), op,
        "alternate: expected no --retry beside it, since rows that take turns have one batch size");
  check(!(options.detail && options.cuda_graph == train::GraphMode::on), op,
        "detail: expected no --cuda-graph on beside it, since nobody can look into a graph");
  check(!(options.alternate && options.cuda_graph == train::GraphMode::on), op,
        "alternate: expected no --cuda-graph on beside it, since each row would keep the memory of a graph");
  train::check_recipe(options.recipe);
  train::check_training(options.recipe);
  if (!options.procs.empty()) {
    check_processes(options);
  }
}

}  // namespace norma::lab::bench
