#pragma once

#include "train/evaluate.h"
#include "train/event_file.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace norma::train {

/// The figures that a run logs after a step: at every interval, after every evaluation, and at the end of every epoch.
struct LogRow {
  int64_t step = 0;    ///< steps done
  double epoch = 0;    ///< epochs done, with fractions
  int64_t images = 0;  ///< images seen
  double lr = 0;       ///< learning rate of the step
  double loss = 0;     ///< mean over the steps since the row before; NaN if all were left out
  double images_per_second = 0;
  Evaluation test = {};                   ///< incomplete: the network was not evaluated
  Evaluation ema_test = {};               ///< likewise with averaged weights
  std::optional<int64_t> left_out = {};   ///< steps left out so far, for Recipe::skip_nonfinite
  std::optional<double> epoch_loss = {};  ///< mean over the steps of the epoch that ends here; NaN if all were left out
};

/// A figure of a row, described once for all files that hold it.
struct LogColumn {
  const char* name;                                   ///< in CSV files and log.jsonl
  std::optional<double> (*value)(const LogRow& row);  ///< none: the row has no such figure
  const char* curve = "";                             ///< its tag in TensorBoard; "": no curve
  /// Its form in CSV files: with a number of digits, with an empty field for NaN, or counted from 0.
  enum class Csv : uint8_t { shortest, one_digit, four_digits, nan_is_empty, from_zero } csv = Csv::shortest;
};

/// The columns of metrics.csv; a run with averaged weights has columns for these, too.
std::span<const LogColumn> metrics_columns(bool with_averaged_weights);
/// The columns of summary.csv, with timm's names and units.
std::span<const LogColumn> epoch_columns();

/// "step,epoch,images,…"
std::string csv_header(std::span<const LogColumn> columns);
/// The row under that header, without a line end. Figures that the row lacks are empty.
std::string csv_line(std::span<const LogColumn> columns, const LogRow& row);
/// The row as JSON objects, each on a line: {"type": "metrics", "step": 2, …}, and at the end of an epoch {"type":
/// "epoch", …}. Missing figures are left out. Figures that are not finite are null, as JSON has no other way.
std::string metrics_json(const LogRow& row);
std::string epoch_json(const LogRow& row);
/// The points of TensorBoard's curves.
EventFile::Scalars curve_points(const LogRow& row);

}  // namespace norma::train
