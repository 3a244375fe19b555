#include "session/evaluation_report.h"

#include "base/error.h"
#include "base/quoting.h"
#include "data/json.h"
#include "session/environment.h"

#include <cmath>
#include <optional>

namespace norma::train {

namespace {

using Json = nlohmann::ordered_json;

Json number_or_null(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? Json(*value) : Json(nullptr);
}

Json percent(const std::optional<double>& share) {
  return number_or_null(share ? std::optional(100 * *share) : std::nullopt);
}

}  // namespace

void ConfusionMatrix::add(const EvaluatedBatch& batch) {
  for (size_t i = 0; i < batch.labels.size(); ++i) {
    ++counts_[{batch.labels[i], batch.answers[i]}];
  }
}

int64_t ConfusionMatrix::count(int64_t label, int64_t answer) const {
  const auto found = counts_.find({label, answer});
  return found == counts_.end() ? 0 : found->second;
}

int64_t ConfusionMatrix::images(int64_t label) const {
  int64_t images = 0;
  for (auto entry = counts_.lower_bound({label, 0}); entry != counts_.end() && entry->first.first == label; ++entry) {
    images += entry->second;
  }
  return images;
}

std::string ConfusionMatrix::csv() const {
  std::string text = kConfusionMatrixHead;
  for (const std::string& name : class_names_) {
    text += "," + csv_field(name);
  }
  text += "\n";
  const auto classes = static_cast<int64_t>(class_names_.size());
  for (int64_t label = 0; label < classes; ++label) {
    text += csv_field(class_names_[static_cast<size_t>(label)]);
    for (int64_t answer = 0; answer < classes; ++answer) {
      text += "," + std::to_string(count(label, answer));
    }
    text += "\n";
  }
  return text;
}

std::string evaluation_json(const Evaluation& evaluation, const ConfusionMatrix& answers,
                            const EvaluationSettings& settings) {
  Json classes = Json::array();
  for (size_t i = 0; i < answers.class_names().size(); ++i) {
    const auto label = static_cast<int64_t>(i);
    const int64_t images = answers.images(label);
    const int64_t correct = answers.count(label, label);
    const auto share =
        images > 0 ? std::optional(static_cast<double>(correct) / static_cast<double>(images)) : std::nullopt;
    classes.push_back(
        {{"name", answers.class_names()[i]}, {"images", images}, {"correct", correct}, {"top1", percent(share)}});
  }
  const auto rate = static_cast<double>(evaluation.images) / evaluation.seconds;
  Json json = {{"evaluation",
                {{"loss", number_or_null(evaluation.loss)},
                 {"top1", percent(evaluation.accuracy)},
                 {"top5", percent(evaluation.top5)},
                 {"images", evaluation.images},
                 {"skipped_images", evaluation.skipped_images},
                 {"images_per_second", number_or_null(rate)},
                 {"seconds", evaluation.seconds},
                 {"complete", evaluation.complete}}},
               {"classes", classes},
               {"settings",
                {{"checkpoint", settings.checkpoint},
                 {"use_ema", settings.averaged_weights},
                 {"recalibrate", settings.recalibrate},
                 {"fold", settings.fold},
                 {"device", settings.device},
                 {"threads", settings.threads},
                 {"recipe", data::parse_json("eval", "the recipe", settings.recipe)}}}};
  if (!settings.plugins.empty()) {
    json["settings"]["plugins"] = data::parse_json("eval", "plugins", plugins_json(settings.plugins));
  }
  try {
    return data::json_text(json, /* indent= */ 1) + "\n";
  } catch (const nlohmann::json::exception&) {
    fail("eval", "--json: names of classes and paths must be UTF-8");
  }
}

}  // namespace norma::train
