#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

namespace norma::train {

/// One row of the log.
struct Metrics {
  int64_t step = 0;    ///< steps done
  double epoch = 0;    ///< epochs done, with fractions
  int64_t images = 0;  ///< images seen
  double lr = 0;
  double loss = 0;  ///< mean over the steps since the row before
  double images_per_second = 0;
  std::optional<double> test_loss = {};  ///< where the model was evaluated
  std::optional<double> test_accuracy = {};
};

/// A CSV file of what happened during training. Every row is on the disk when write() returns.
class MetricsLog {
 public:
  /// Starts the file, or with `resume_step` > 0 keeps the rows of an existing one up to that step.
  /// Throws Error that names the file when it cannot be written.
  MetricsLog(std::filesystem::path file, int64_t resume_step);
  void write(const Metrics& metrics);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  void put(const std::string& line);

  std::filesystem::path path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace norma::train
