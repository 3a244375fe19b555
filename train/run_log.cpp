#include "train/run_log.h"

#include "core/error.h"
#include "core/input_file.h"
#include "data/json.h"
#include "nn/norm/norm.h"
#include "train/output.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace norma::train {

namespace {

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
  if (summary.size() > 1 && summary.front() == csv_header(epoch_columns())) {
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

RunLog::RunLog(const RunLogOptions& options)
    : folder_(options.folder),
      columns_(metrics_columns(options.averaged_weights)),
      tensorboard_(options.tensorboard),
      events_from_(options.last_step == 0 ? 0 : options.last_step + 1) {
  const bool goes_on = options.last_step > 0;
  const auto earlier = [&](const char* name) { return goes_on ? options.earlier / name : std::filesystem::path(); };
  const bool json = options.json || (goes_on && path_exists("train", earlier(kJsonName)));
  check_own(folder_, kSummaryName);
  if (json || path_exists("train", folder_ / kJsonName)) {
    check_own(folder_, kJsonName);
  }
  std::error_code none;
  const std::filesystem::path from = options.earlier.empty() ? "." : options.earlier;
  if (!goes_on || !std::filesystem::equivalent(from, folder_, none)) {
    check(!has_finished_epoch(folder_), "train",
          "'{}' holds the logs of another run, which has finished an epoch: choose another output folder",
          folder_.string());
  }
  const std::filesystem::path metrics_file = folder_ / kMetricsName;
  check_replaceable("metrics", metrics_file, "the log of a training run", [](std::string_view beginning) {
    return beginning.starts_with(csv_header(metrics_columns(false)) + "\n") ||
           beginning.starts_with(csv_header(metrics_columns(true)) + "\n");
  });
  const std::vector<std::string> rows =
      csv_rows("metrics", earlier(kMetricsName), csv_header(columns_), [&](const std::string& row) {
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
  summary_.emplace("train", folder_ / kSummaryName,
                   csv_rows("train", earlier(kSummaryName), csv_header(epoch_columns()),
                            [&](const std::string& row) { return first_number(row) < epochs; }));
  if (json) {
    json_.emplace("train", folder_ / kJsonName,
                  json_lines(earlier(kJsonName), last_step, epochs * options.steps_per_epoch));
  } else {  // from a run that ended before its first checkpoint; resuming would go on with it
    std::filesystem::remove(folder_ / kJsonName, none);
  }
}

void RunLog::write(const LogRow& row, const std::function<void()>& before_file) {
  const auto add = [&](std::optional<LogFile>& file, const std::string& line) {
    before_file();
    file->add(line);
  };
  if (row.epoch_loss) {
    add(summary_, csv_line(epoch_columns(), row));
  }
  if (json_) {
    add(json_, metrics_json(row));
    if (row.epoch_loss) {
      add(json_, epoch_json(row));
    }
  }
  add(metrics_, csv_line(columns_, row));
  if (tensorboard_ != nullptr) {
    before_file();
    write_event(row);
  }
}

void RunLog::note(const std::string& json, const std::function<void()>& before_file) {
  if (json_) {
    before_file();
    json_->add(json);
  }
}

void RunLog::write_event(const LogRow& row) {
  if (!events_) {
    events_.emplace(folder_, events_from_);
  }
  events_->add_scalars(row.step, curve_points(row));
  if (!row.test.complete) {
    return;
  }
  for (const auto& [path, module] : tensorboard_->named_modules()) {
    if (dynamic_cast<const nn::Norm*>(module) != nullptr) {
      for (const auto& [name, x] : module->named_parameters()) {
        events_->add_histogram(row.step, "norm/" + path + "." + name, x.to_vector<float>());
      }
    }
  }
}

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
