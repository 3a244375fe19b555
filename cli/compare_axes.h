#pragma once

#include "cli/options.h"
#include "core/memory_format.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace norma::cli {

train::Recipe recipe_of_comparisons();

/// Lists of values that replace one value of the recipe; empty if not given.
struct GridAxes {
  std::vector<int64_t> batch_sizes;
  std::vector<double> lrs;
  std::vector<std::string> precisions;
  std::vector<MemoryFormat> formats;
  std::vector<std::string> datasets;
  std::map<std::string, std::vector<std::string>> options;  ///< on lab::option_axes(), by the option's name

  [[nodiscard]] bool any() const {
    return !batch_sizes.empty() || !lrs.empty() || !precisions.empty() || !formats.empty() || !datasets.empty() ||
           !options.empty();
  }
};

/// Adds an option of the recipe that takes several values here: texts, int64_t or double. `default_text` "" stands for
/// the recipe's own.
template <class T>
void add_axis(CLI::App& app, const std::string& names, const std::string& option_name, std::vector<T>& values,
              const std::string& default_text = "");

/// Adds the options of the axes in GridAxes but --precisions, which has another heading.
void add_axes(CLI::App& app, GridAxes& axes);
/// The options of a recipe that add_axes() adds as axes.
std::vector<std::string> axis_options();

}  // namespace norma::cli
