#include "train/metrics_log.h"

#include "train/output.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <string_view>
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

/// The rows that count, with the header before them.
std::vector<std::string> rows_of(const EarlierRows& earlier, const std::string& header) {
  std::vector<std::string> rows{header};
  if (earlier.last_step == 0) {
    return rows;
  }
  const auto commas = std::count(header.begin(), header.end(), ',');
  const std::vector<std::string> lines = whole_lines("metrics", earlier.file);
  for (size_t i = 1; i < lines.size(); ++i) {
    const std::string& line = lines[i];
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

bool has_finished_epoch_row(const std::filesystem::path& file) {
  const std::vector<std::string> lines = whole_lines("metrics", file);
  if (lines.empty() || !lines.front().starts_with(kHeader)) {
    return false;
  }
  return std::any_of(lines.begin() + 1, lines.end(), [](const std::string& row) {
    const size_t comma = row.find(',');
    return comma != std::string::npos && (std::strtod(row.c_str() + comma + 1, nullptr) >= 1 || !row.ends_with(","));
  });
}

MetricsLog::MetricsLog(const std::filesystem::path& file, const EarlierRows& earlier, MetricsColumns columns)
    : columns_(columns) {
  check_replaceable("metrics", file, "the log of a training run", [](std::string_view beginning) {
    return beginning.starts_with(header_of(MetricsColumns::plain) + "\n") ||
           beginning.starts_with(header_of(MetricsColumns::ema) + "\n");
  });
  const std::vector<std::string> rows = rows_of(earlier, header_of(columns_));
  has_last_step_ = rows.size() > 1 && step_of(rows.back()) == earlier.last_step;
  file_.emplace("metrics", file, rows);
}

void MetricsLog::write(const Metrics& metrics) {
  std::string row =
      fmt::format("{},{:.4f},{},{},{},{:.1f},{},{}", metrics.step, metrics.epoch, metrics.images, metrics.lr,
                  std::isnan(metrics.loss) ? "" : fmt::format("{}", metrics.loss), metrics.images_per_second,
                  optional_number(metrics.test_loss), optional_number(metrics.test_accuracy));
  if (columns_ == MetricsColumns::ema) {
    row += fmt::format(",{},{}", optional_number(metrics.ema_test_loss), optional_number(metrics.ema_test_accuracy));
  }
  file_->add(row);
}

}  // namespace norma::train
