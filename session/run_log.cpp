#include "session/run_log.h"

#include "base/error.h"
#include "base/input_file.h"
#include "base/lists.h"
#include "data/json.h"
#include "nn/norm/norm.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <system_error>

namespace norma::train {

namespace {

void put_fixed(std::string& out, uint64_t bits, int bytes) {
  for (int i = 0; i < bytes; ++i) {
    out += static_cast<char>(bits >> (8 * i));
  }
}

/// A message in the wire format of protocol buffers: a field begins with its number and the kind of its value; numbers
/// are little-endian.
struct WireMessage {
  std::string bytes = {};

  WireMessage& add(int field, int64_t value) {
    put_varint(static_cast<uint64_t>(field) << 3);
    put_varint(static_cast<uint64_t>(value));
    return *this;
  }
  WireMessage& add(int field, double value) {
    put_varint(static_cast<uint64_t>(field) << 3 | 1);
    put_fixed(bytes, std::bit_cast<uint64_t>(value), 8);
    return *this;
  }
  WireMessage& add(int field, float value) {
    put_varint(static_cast<uint64_t>(field) << 3 | 5);
    put_fixed(bytes, std::bit_cast<uint32_t>(value), 4);
    return *this;
  }
  WireMessage& add(int field, std::string_view content) {
    put_varint(static_cast<uint64_t>(field) << 3 | 2);
    put_varint(content.size());
    bytes += content;
    return *this;
  }
  WireMessage& add(int field, std::span<const double> values) {
    std::string packed;
    for (const double value : values) {
      put_fixed(packed, std::bit_cast<uint64_t>(value), 8);
    }
    return add(field, packed);
  }

 private:
  void put_varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) {
      bytes += static_cast<char>(value | 0x80);
    }
    bytes += static_cast<char>(value);
  }
};

/// Event: wall_time = 1, step = 2, and one of file_version = 3, summary = 5, session_log = 7.
std::string event(int64_t step, int field, std::string_view content) {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  return WireMessage().add(1, now.count()).add(2, step).add(field, content).bytes;
}
constexpr int kFileVersion = 3;
constexpr int kSummary = 5;
constexpr int kSessionLog = 7;

constexpr std::string_view kPrefix = "events.out.tfevents.";

/// The seconds in the name of a folder's next file: the clock's, or more than those of all earlier files. TensorBoard
/// reads the files in the order of their names, and the clock may have been set back.
int64_t next_seconds(const std::filesystem::path& folder) {
  constexpr int64_t kLast = 9'999'999'998;  // names of ten digits sort as their numbers
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  int64_t seconds = std::chrono::duration_cast<std::chrono::seconds>(now).count();
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    int64_t number = 0;
    if (name.starts_with(kPrefix) &&
        std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), number).ec == std::errc() &&
        number <= kLast) {
      seconds = std::max(seconds, number + 1);
    }
  }
  return seconds;
}

/// TFRecord's mask: plain CRCs of data that contains CRCs are weak.
uint32_t masked(uint32_t crc) {
  return std::rotr(crc, 15) + 0xA282EAD8U;
}

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
  return fmt::format("{}", fmt::join(mapped(columns, &LogColumn::name), ","));
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
  const auto commas = std::ranges::count(header, ',');
  const std::vector<std::string> lines = whole_lines(op, earlier);
  for (size_t i = 1; i < lines.size(); ++i) {
    if (std::ranges::count(lines[i], ',') != commas || !counts(lines[i])) {
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

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = ~0U;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78U : 0U);
    }
  }
  return ~crc;
}

EventFile::EventFile(const std::filesystem::path& folder, int64_t first_step) {
  for (int64_t seconds = next_seconds(folder); !file_; ++seconds) {
    path_ = folder / fmt::format("{}{:010}.{}.norma", kPrefix, seconds, ::getpid());
    file_.reset(std::fopen(path_.c_str(), "wbx"));
    if (!file_ && errno != EEXIST) {
      cannot_write("events", path_, errno);
    }
  }
  write(event(0, kFileVersion, "brain.Event:2"));
  if (first_step > 0) {
    // SessionLog: status = 1, START is 1
    write(event(first_step, kSessionLog, WireMessage().add(1, int64_t{1}).bytes));
  }
}

void EventFile::write(const std::string& event) {
  std::string length;
  put_fixed(length, event.size(), 8);
  std::string record = length;
  put_fixed(record, masked(crc32c(length)), 4);
  record += event;
  put_fixed(record, masked(crc32c(event)), 4);
  if (std::fwrite(record.data(), 1, record.size(), file_.get()) != record.size() || std::fflush(file_.get()) != 0) {
    cannot_write("events", path_, errno);
  }
}

void EventFile::add_scalars(int64_t step, const Scalars& scalars) {
  WireMessage summary;  // Summary: value = 1; Value: tag = 1, simple_value = 2
  for (const auto& [tag, number] : scalars) {
    summary.add(1, WireMessage().add(1, tag).add(2, static_cast<float>(number)).bytes);
  }
  if (!scalars.empty()) {
    write(event(step, kSummary, summary.bytes));
  }
}

void EventFile::add_histogram(int64_t step, std::string_view tag, std::span<const float> values) {
  constexpr size_t kBuckets = 30;
  double least = INFINITY;
  double most = -INFINITY;
  double sum = 0;
  double squares = 0;
  int64_t count = 0;
  for (const float value : values) {
    if (std::isfinite(value)) {
      least = std::min<double>(least, value);
      most = std::max<double>(most, value);
      sum += value;
      squares += static_cast<double>(value) * value;
      ++count;
    }
  }
  if (count == 0) {
    return;
  }
  // Upper ends of the intervals. Equal values lie in one interval around them, with a width in proportion to their
  // size.
  const double width = most > least ? (most - least) / kBuckets : std::max(std::abs(most), 1.0) * 1e-6;
  std::array<double, kBuckets> limits{};
  std::array<double, kBuckets> counts{};
  for (size_t i = 0; i < kBuckets; ++i) {
    limits[i] = least + width * static_cast<double>(i + 1);
  }
  limits.back() = std::max(limits.back(), most);
  for (const float value : values) {
    if (std::isfinite(value)) {
      const auto bucket = static_cast<size_t>((value - least) / width);
      counts[std::min(bucket, kBuckets - 1)] += 1;
    }
  }
  WireMessage histogram;  // HistogramProto: min, max, num, sum, sum_squares = 1 … 5, bucket_limit = 6, bucket = 7
  histogram.add(1, least).add(2, most).add(3, static_cast<double>(count)).add(4, sum).add(5, squares);
  histogram.add(6, std::span<const double>(limits)).add(7, std::span<const double>(counts));
  const std::string value = WireMessage().add(1, tag).add(5, histogram.bytes).bytes;  // Value: tag = 1, histo = 5
  write(event(step, kSummary, WireMessage().add(1, value).bytes));
}

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
  const bool goes_on = options.resumed || options.last_step > 0;
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
  const int64_t last_step = options.last_step - (options.last_step > 0 && !has_last_step_ ? 1 : 0);
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
