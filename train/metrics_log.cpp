#include "train/metrics_log.h"

#include "core/input_file.h"
#include "train/output.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace norma::train {

namespace {

constexpr std::string_view kHeader = "step,epoch,images,lr,loss,images_per_second,test_loss,test_accuracy";
constexpr std::string_view kEmaColumns = ",ema_test_loss,ema_test_accuracy";

std::string header_of(MetricsColumns columns) {
  return fmt::format("{}{}", kHeader, columns == MetricsColumns::ema ? kEmaColumns : "");
}

int64_t step_of(const std::string& row) {
  return std::strtoll(row.c_str(), nullptr, 10);
}

/// The rows that count, without the header.
std::vector<std::string> rows_of(const EarlierRows& earlier, const std::string& header) {
  constexpr uint64_t kMaxBytes = uint64_t{1} << 30;
  std::vector<std::string> rows;
  if (!path_exists("metrics", earlier.file)) {
    return rows;
  }
  const auto commas = std::count(header.begin(), header.end(), ',');
  std::istringstream in(read_text_file("metrics", earlier.file, kMaxBytes));
  std::string line;
  std::getline(in, line);
  // A row that was cut while it was written has no end of the line.
  while (std::getline(in, line) && !in.eof()) {
    const bool whole = std::count(line.begin(), line.end(), ',') == commas;
    const bool evaluated = !line.ends_with(",");
    if (!whole || step_of(line) > earlier.last_step ||
        (step_of(line) == earlier.last_step && earlier.evaluated && !evaluated)) {
      break;
    }
    rows.push_back(line);
  }
  return rows;
}

std::string optional_number(const std::optional<double>& value) {
  return value ? fmt::format("{}", *value) : "";
}

}  // namespace

MetricsLog::MetricsLog(std::filesystem::path file, const EarlierRows& earlier, MetricsColumns columns)
    : path_(std::move(file)), columns_(columns) {
  check_replaceable("metrics", path_, "the log of a training run", [](std::string_view beginning) {
    return beginning.starts_with(header_of(MetricsColumns::plain) + "\n") ||
           beginning.starts_with(header_of(MetricsColumns::ema) + "\n");
  });
  const std::string header = header_of(columns_);
  const std::vector<std::string> rows = earlier.last_step > 0 ? rows_of(earlier, header) : std::vector<std::string>{};
  has_last_step_ = !rows.empty() && step_of(rows.back()) == earlier.last_step;
  // What is kept of an earlier log is written as a whole first: a full disk must not cut it.
  std::string text = header + "\n";
  for (const std::string& row : rows) {
    text += row + "\n";
  }
  write_text_file("metrics", path_, text);
  file_.reset(std::fopen(path_.c_str(), "a"));
  if (!file_) {
    cannot_write("metrics", path_, errno);
  }
}

void MetricsLog::put(const std::string& line) {
  if (std::fputs(line.c_str(), file_.get()) == EOF || std::fputc('\n', file_.get()) == EOF ||
      std::fflush(file_.get()) != 0) {
    cannot_write("metrics", path_, errno);
  }
}

void MetricsLog::write(const Metrics& metrics) {
  std::string row = fmt::format("{},{:.4f},{},{},{},{:.1f},{},{}", metrics.step, metrics.epoch, metrics.images,
                                metrics.lr, metrics.loss, metrics.images_per_second, optional_number(metrics.test_loss),
                                optional_number(metrics.test_accuracy));
  if (columns_ == MetricsColumns::ema) {
    row += fmt::format(",{},{}", optional_number(metrics.ema_test_loss), optional_number(metrics.ema_test_accuracy));
  }
  put(row);
}

}  // namespace norma::train
