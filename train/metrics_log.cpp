#include "train/metrics_log.h"

#include "train/output.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace norma::train {

namespace {

constexpr std::string_view kHeader = "step,epoch,images,lr,loss,images_per_second,test_loss,test_accuracy";

/// The rows of an earlier log up to `last_step`, without the header.
std::vector<std::string> rows_until(const std::filesystem::path& file, int64_t last_step) {
  std::vector<std::string> rows;
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  while (std::getline(in, line)) {
    if (std::strtoll(line.c_str(), nullptr, 10) > last_step) {
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

MetricsLog::MetricsLog(std::filesystem::path file, int64_t resume_step) : path_(std::move(file)) {
  const std::vector<std::string> rows = resume_step > 0 ? rows_until(path_, resume_step) : std::vector<std::string>{};
  // What is kept of an earlier log is written as a whole first: a full disk must not cut it.
  std::string text = std::string(kHeader) + "\n";
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
  put(fmt::format("{},{:.4f},{},{},{},{:.1f},{},{}", metrics.step, metrics.epoch, metrics.images, metrics.lr,
                  metrics.loss, metrics.images_per_second, optional_number(metrics.test_loss),
                  optional_number(metrics.test_accuracy)));
}

}  // namespace norma::train
