#include "train/log_row.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace norma::train {

namespace {

using Figure = std::optional<double>;
using Csv = LogColumn::Csv;

Figure if_evaluated(const Evaluation& test, double value) {
  return test.complete ? Figure(value) : std::nullopt;
}

/// The evaluation for summary.csv: as in timm that of the averaged weights, if there are any.
const Evaluation& of_epoch(const LogRow& row) {
  return row.ema_test.complete ? row.ema_test : row.test;
}

constexpr size_t kPlainColumns = 8;  // metrics.csv without averaged weights
constexpr size_t kCsvColumns = 10;   // the others are only in log.jsonl
constexpr std::array kMetricsColumns = {
    LogColumn{"step", [](const LogRow& row) -> Figure { return static_cast<double>(row.step); }},
    LogColumn{"epoch", [](const LogRow& row) -> Figure { return row.epoch; }, "epoch", Csv::four_digits},
    LogColumn{"images", [](const LogRow& row) -> Figure { return static_cast<double>(row.images); }},
    LogColumn{"lr", [](const LogRow& row) -> Figure { return row.lr; }, "lr"},
    LogColumn{"loss", [](const LogRow& row) -> Figure { return row.loss; }, "loss/train", Csv::nan_is_empty},
    LogColumn{"images_per_second", [](const LogRow& row) -> Figure { return row.images_per_second; },
              "images_per_second", Csv::one_digit},
    LogColumn{"test_loss", [](const LogRow& row) { return if_evaluated(row.test, row.test.loss); }, "loss/test"},
    LogColumn{"test_accuracy", [](const LogRow& row) { return if_evaluated(row.test, row.test.accuracy); },
              "accuracy/test"},
    LogColumn{"ema_test_loss", [](const LogRow& row) { return if_evaluated(row.ema_test, row.ema_test.loss); },
              "loss/ema_test"},
    LogColumn{"ema_test_accuracy", [](const LogRow& row) { return if_evaluated(row.ema_test, row.ema_test.accuracy); },
              "accuracy/ema_test"},
    LogColumn{"left_out", [](const LogRow& row) { return Figure(row.left_out); }},
};

constexpr std::array kEpochColumns = {
    LogColumn{"epoch", [](const LogRow& row) -> Figure { return std::ceil(row.epoch); }, "", Csv::from_zero},
    LogColumn{"train_loss", [](const LogRow& row) { return row.epoch_loss; }, "", Csv::nan_is_empty},
    LogColumn{"eval_loss", [](const LogRow& row) { return if_evaluated(row.test, of_epoch(row).loss); }},
    LogColumn{"eval_top1", [](const LogRow& row) { return if_evaluated(row.test, 100 * of_epoch(row).accuracy); }},
    LogColumn{"eval_top5",  // with fewer than six classes all are among the first five
              [](const LogRow& row) { return if_evaluated(row.test, 100 * of_epoch(row).top5.value_or(1)); }},
    LogColumn{"lr", [](const LogRow& row) -> Figure { return row.lr; }},
};

std::string csv_text(Csv csv, double value) {
  switch (csv) {
    case Csv::shortest: break;
    case Csv::one_digit: return fmt::format("{:.1f}", value);
    case Csv::four_digits: return fmt::format("{:.4f}", value);
    case Csv::nan_is_empty: return std::isnan(value) ? "" : fmt::format("{}", value);
    case Csv::from_zero: return fmt::format("{}", value - 1);
  }
  return fmt::format("{}", value);
}

std::string json_line(const char* type, std::span<const LogColumn> columns, const LogRow& row) {
  std::string text = fmt::format(R"({{"type": "{}", "step": {})", type, row.step);
  for (const LogColumn& column : columns) {
    if (const Figure value = column.value(row)) {
      text += fmt::format(R"(, "{}": {})", column.name, std::isfinite(*value) ? fmt::format("{}", *value) : "null");
    }
  }
  return text + "}";
}

}  // namespace

std::span<const LogColumn> metrics_columns(bool with_averaged_weights) {
  return std::span(kMetricsColumns).first(with_averaged_weights ? kCsvColumns : kPlainColumns);
}

std::span<const LogColumn> epoch_columns() {
  return kEpochColumns;
}

std::string csv_header(std::span<const LogColumn> columns) {
  std::string text;
  for (const LogColumn& column : columns) {
    text += (text.empty() ? "" : ",") + std::string(column.name);
  }
  return text;
}

std::string csv_line(std::span<const LogColumn> columns, const LogRow& row) {
  std::string text;
  for (const LogColumn& column : columns) {
    const Figure value = column.value(row);
    text += (&column == columns.data() ? "" : ",") + (value ? csv_text(column.csv, *value) : "");
  }
  return text;
}

std::string metrics_json(const LogRow& row) {
  return json_line("metrics", std::span(kMetricsColumns).subspan(1), row);
}

std::string epoch_json(const LogRow& row) {
  return json_line("epoch", kEpochColumns, row);
}

EventFile::Scalars curve_points(const LogRow& row) {
  EventFile::Scalars points;
  for (const LogColumn& column : kMetricsColumns) {
    const Figure value = *column.curve != '\0' ? column.value(row) : std::nullopt;
    if (value && !(std::isnan(*value) && column.csv == Csv::nan_is_empty)) {
      points.emplace_back(column.curve, *value);
    }
  }
  return points;
}

}  // namespace norma::train
