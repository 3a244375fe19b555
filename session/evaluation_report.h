#pragma once

#include "nn/plugin_file.h"
#include "train/evaluate.h"

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace norma::train {

/// The number of each answer that a network gave to the images of each class.
class ConfusionMatrix {
 public:
  explicit ConfusionMatrix(std::vector<std::string> class_names) : class_names_(std::move(class_names)) {}

  void add(const EvaluatedBatch& batch);

  [[nodiscard]] const std::vector<std::string>& class_names() const { return class_names_; }
  [[nodiscard]] int64_t count(int64_t label, int64_t answer) const;
  /// The number of images of a class.
  [[nodiscard]] int64_t images(int64_t label) const;
  /// The matrix as a CSV file (RFC 4180): a row for each class of the images, a column for each answer, with names.
  [[nodiscard]] std::string csv() const;

 private:
  std::vector<std::string> class_names_;
  std::map<std::pair<int64_t, int64_t>, int64_t> counts_;  // by label and answer; thousands of classes make few pairs
};

/// The beginning of such a file.
inline constexpr const char* kConfusionMatrixHead = "label \\ answer";

/// The settings of an evaluation, for readers of its figures.
struct EvaluationSettings {
  std::string checkpoint;
  bool averaged_weights = false;
  int64_t recalibrate = 0;
  bool fold = false;
  std::string device;
  int threads = 1;
  std::string recipe;  ///< to_json()
  std::vector<nn::PluginRecord> plugins = {};
};

/// JSON: "evaluation" (loss, top1 and top5 in percent as in timm's validate.py, images, skipped_images,
/// images_per_second, seconds, complete), "classes" with the accuracy of each, "settings". Figures that are missing or
/// not finite are null.
std::string evaluation_json(const Evaluation& evaluation, const ConfusionMatrix& answers,
                            const EvaluationSettings& settings);

/// The beginning of such a text.
inline constexpr const char* kEvaluationJsonHead = "{\n \"evaluation\":";

}  // namespace norma::train
