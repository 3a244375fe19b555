#include "session/run_log.h"

#include "base/error.h"
#include "base/input_file.h"
#include "data/json.h"
#include "nn/norm/norm.h"
#include "session/output.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace norma::train {

namespace {

using Figure = std::optional<double>;

/// A figure of a row, described once for all files that hold it.
struct LogColumn {
  const char* name;                    ///< in CSV files and log.jsonl
  Figure (*value)(const LogRow& row);  ///< none: the row has no such figure
  const char* curve = "";              ///< its tag in TensorBoard; "": no curve
  /// Its form in CSV files: with a number of digits, with an empty field for NaN, or counted from 0.
  enum class Csv : uint8_t { shortest, one_digit, four_digits, nan_is_empty, from_zero } csv = Csv::shortest;
};

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

/// The columns of summary.csv, with timm's names and units.
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

/// The row as a JSON object on a line: {"type": "metrics", "step": 2, …}. Missing figures are left out. Figures that
/// are not finite are null, as JSON has no other way.
std::string json_line(const char* type, std::span<const LogColumn> columns, const LogRow& row) {
  std::string text = fmt::format(R"({{"type": "{}", "step": {})", type, row.step);
  for (const LogColumn& column : columns) {
    if (const Figure value = column.value(row)) {
      text += fmt::format(R"(, "{}": {})", column.name, std::isfinite(*value) ? fmt::format("{}", *value) : "null");
    }
  }
  return text + "}";
}

/// The columns of metrics.csv; a run with averaged weights has columns for these, too.
std::span<const LogColumn> metrics_columns(bool with_averaged_weights) {
  return std::span(kMetricsColumns).first(with_averaged_weights ? kCsvColumns : kPlainColumns);
}

/// "step,epoch,images,…"
std::string csv_header(std::span<const LogColumn> columns) {
  std::string text;
  for (const LogColumn& column : columns) {
    text += (text.empty() ? "" : ",") + std::string(column.name);
  }
  return text;
}

/// The row under that header, without a line end. Figures that the row lacks are empty.
std::string csv_line(std::span<const LogColumn> columns, const LogRow& row) {
  std::string text;
  for (const LogColumn& column : columns) {
    const Figure value = column.value(row);
    text += (&column == columns.data() ? "" : ",") + (value ? csv_text(column.csv, *value) : "");
  }
  return text;
}

/// The points of TensorBoard's curves.
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

constexpr const char* kMetricsName = "metrics.csv";
constexpr const char* kSummaryName = "summary.csv";
constexpr const char* kJsonName = "log.jsonl";

/// Keeps another program's file of that name. timm's have the same first line; a metrics.csv beside it shows that it is
/// ours.
void check_own(const std::filesystem::path& folder, const char* name) {
  check(path_exists("train", folder / kMetricsName) || !path_exists("train", folder / name), "train",
        "'{}' is not the log of a run of Norma: remove it, or choose another output folder", (folder / name).string());
}

int64_t first_number(const std::string& row) {
  return std::strtoll(row.c_str(), nullptr, 10);
}

bool has_test_figures(const std::string& row) {
  return !row.ends_with(",");
}

/// The lines of a log that may have been cut while it was written, without a last line that has no end. None for a file
/// that does not exist. Throws Error "op: …" for one that cannot be read.
std::vector<std::string> whole_lines(std::string_view op, const std::filesystem::path& file) {
  constexpr uint64_t kMaxBytes = uint64_t{1} << 30;
  std::vector<std::string> lines;
  if (!path_exists(op, file)) {
    return lines;
  }
  std::istringstream in(read_text_file(op, file, kMaxBytes));
  std::string line;
  while (std::getline(in, line) && !in.eof()) {
    lines.push_back(line);
  }
  return lines;
}

/// The header of a CSV file, and an earlier file's rows up to the first that is cut or does not count.
std::vector<std::string> csv_rows(std::string_view op, const std::filesystem::path& earlier, const std::string& header,
                                  const std::function<bool(const std::string& row)>& counts) {
  std::vector<std::string> rows{header};
  const auto commas = std::count(header.begin(), header.end(), ',');
  const std::vector<std::string> lines = whole_lines(op, earlier);
  for (size_t i = 1; i < lines.size(); ++i) {
    if (std::count(lines[i].begin(), lines[i].end(), ',') != commas || !counts(lines[i])) {
      break;
    }
    rows.push_back(lines[i]);
  }
  return rows;
}

/// The lines of an earlier log.jsonl up to a step; the lines of epochs up to another step.
std::vector<std::string> json_lines(const std::filesystem::path& earlier, int64_t last_step, int64_t last_epoch_step) {
  std::vector<std::string> lines;
  for (const std::string& line : whole_lines("train", earlier)) {
    try {
      const nlohmann::json object = data::parse_json("train", kJsonName, line);
      const auto step = data::json_field<int64_t>("train", object, "step");
      if (step > last_step) {
        break;
      }
      // A run that ended inside an epoch and is made longer writes that epoch again.
      if (data::json_field<std::string>("train", object, "type") == "epoch" && step > last_epoch_step) {
        continue;
      }
      if (object.contains("at") && object["at"] == "end") {  // the resumed run writes it again
        continue;
      }
    } catch (const Error&) {
      break;
    }
    lines.push_back(line);
  }
  return lines;
}

}  // namespace

bool has_finished_epoch(const std::filesystem::path& folder) {
  const std::vector<std::string> summary = whole_lines("train", folder / kSummaryName);
  if (summary.size() > 1 && summary.front() == csv_header(kEpochColumns)) {
    return true;
  }
  const std::vector<std::string> metrics = whole_lines("metrics", folder / kMetricsName);
  if (metrics.empty() || !metrics.front().starts_with(csv_header(metrics_columns(false)))) {
    return false;
  }
  return std::any_of(metrics.begin() + 1, metrics.end(), [](const std::string& row) {
    const size_t comma = row.find(',');
    return comma != std::string::npos && (std::strtod(row.c_str() + comma + 1, nullptr) >= 1 || has_test_figures(row));
  });
}

RunLog::RunLog(const RunLogOptions& options) : options_(options) {
  const std::filesystem::path& folder = options.folder;
  const std::string header = csv_header(metrics_columns(options.averaged_weights));
  const bool goes_on = options.last_step > 0;
  const auto earlier = [&](const char* name) { return goes_on ? options.earlier / name : std::filesystem::path(); };
  const bool json = options.json || (goes_on && path_exists("train", earlier(kJsonName)));
  check_own(folder, kSummaryName);
  if (json || path_exists("train", folder / kJsonName)) {
    check_own(folder, kJsonName);
  }
  std::error_code none;
  const std::filesystem::path from = options.earlier.empty() ? "." : options.earlier;
  if (!goes_on || !std::filesystem::equivalent(from, folder, none)) {
    check(!has_finished_epoch(folder), "train",
          "'{}' holds the logs of another run, which has finished an epoch: choose another output folder",
          folder.string());
  }
  const std::filesystem::path metrics_file = folder / kMetricsName;
  check_replaceable("metrics", metrics_file, "the log of a training run", [](std::string_view beginning) {
    return beginning.starts_with(csv_header(metrics_columns(false)) + "\n") ||
           beginning.starts_with(csv_header(metrics_columns(true)) + "\n");
  });
  const std::vector<std::string> rows = csv_rows("metrics", earlier(kMetricsName), header, [&](const std::string& row) {
    const int64_t step = first_number(row);
    return step < options.last_step || (step == options.last_step && (!options.evaluated || has_test_figures(row)));
  });
  has_last_step_ = rows.size() > 1 && first_number(rows.back()) == options.last_step;
  metrics_.emplace("metrics", metrics_file, rows);

  // metrics.csv gets its row last. If it lacks the last step's row, the other files' rows are written again.
  const int64_t last_step = options.last_step - (goes_on && !has_last_step_ ? 1 : 0);
  int64_t epochs = last_step / options.steps_per_epoch;
  if (options.ended && has_last_step_ && last_step % options.steps_per_epoch != 0) {
    ++epochs;
  }
  summary_.emplace("train", folder / kSummaryName,
                   csv_rows("train", earlier(kSummaryName), csv_header(kEpochColumns),
                            [&](const std::string& row) { return first_number(row) < epochs; }));
  if (json) {
    json_.emplace("train", folder / kJsonName,
                  json_lines(earlier(kJsonName), last_step, epochs * options.steps_per_epoch));
  } else {  // from a run that ended before its first checkpoint; resuming would go on with it
    std::filesystem::remove(folder / kJsonName, none);
  }
}

void RunLog::add(std::optional<LogFile>& file, const std::string& line) {
  if (options_.before_file) {
    options_.before_file();
  }
  file->add(line);
}

void RunLog::write(const LogRow& row) {
  if (row.epoch_loss) {
    add(summary_, csv_line(kEpochColumns, row));
  }
  if (json_) {
    add(json_, json_line("metrics", std::span(kMetricsColumns).subspan(1), row));
    if (row.epoch_loss) {
      add(json_, json_line("epoch", kEpochColumns, row));
    }
  }
  add(metrics_, csv_line(metrics_columns(options_.averaged_weights), row));
  if (options_.tensorboard != nullptr) {
    write_event(row);
  }
}

void RunLog::note(const std::string& json) {
  if (json_) {
    add(json_, json);
  }
}

void RunLog::write_event(const LogRow& row) {
  if (options_.before_file) {
    options_.before_file();
  }
  if (!events_) {  // it covers the steps to come
    events_.emplace(options_.folder, options_.last_step == 0 ? 0 : options_.last_step + 1);
  }
  events_->add_scalars(row.step, curve_points(row));
  if (!row.test.complete) {
    return;
  }
  for (const auto& [path, module] : options_.tensorboard->named_modules()) {
    if (dynamic_cast<const nn::Norm*>(module) != nullptr) {
      for (const auto& [name, x] : module->named_parameters()) {
        events_->add_histogram(row.step, "norm/" + path + "." + name, x.to_vector<float>());
      }
    }
  }
}

LogFile::LogFile(std::string op, std::filesystem::path file, const std::vector<std::string>& lines)
    : op_(std::move(op)), path_(std::move(file)) {
  std::string text;
  for (const std::string& line : lines) {
    text += line + "\n";
  }
  write_text_file(op_, path_, text);
  // The file exists now. If it had to be made, the folder would be another one that has taken this one's place.
  const int descriptor = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (descriptor < 0) {
    cannot_write(op_, path_, errno);
  }
  file_.reset(::fdopen(descriptor, "a"));
  if (!file_) {
    const int error = errno;
    ::close(descriptor);
    cannot_write(op_, path_, error);
  }
}

void LogFile::add(const std::string& line) {
  if (std::fputs(line.c_str(), file_.get()) == EOF || std::fputc('\n', file_.get()) == EOF ||
      std::fflush(file_.get()) != 0) {
    cannot_write(op_, path_, errno);
  }
}

}  // namespace norma::train
