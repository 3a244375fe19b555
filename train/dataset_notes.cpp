#include "train/dataset_notes.h"

#include "base/error.h"
#include "base/excerpt.h"
#include "data/json.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>

namespace norma::train {

std::string class_names_text(const data::DatasetInfo& dataset) {
  try {
    return data::json_text(nlohmann::json(dataset.class_names));
  } catch (const nlohmann::json::exception&) {
    fail("checkpoint", "class names of dataset '{}' must be UTF-8", dataset.name);
  }
}

std::string normalization_text(const data::DatasetInfo& dataset) {
  const auto of_channels = [](const std::vector<float>& values) {  // a grey image is three times the same
    return values.size() == 1 ? std::vector<float>(3, values[0]) : values;
  };
  return data::json_text(nlohmann::json{{"mean", of_channels(dataset.mean)}, {"std", of_channels(dataset.std)}});
}

std::string normalization_of(const Checkpoint& checkpoint) {
  const auto found = checkpoint.options.find(kNormalizationKey);
  if (found == checkpoint.options.end()) {
    return "";
  }
  const nlohmann::json json = data::parse_json("checkpoint", kNormalizationKey, found->second);
  return data::json_text(nlohmann::json{{"mean", data::json_field<std::vector<double>>("checkpoint", json, "mean")},
                                        {"std", data::json_field<std::vector<double>>("checkpoint", json, "std")}});
}

std::vector<std::string> class_names_of(const Checkpoint& checkpoint) {
  const auto found = checkpoint.options.find(kClassNamesKey);
  if (found == checkpoint.options.end()) {
    return {};
  }
  return data::json_as<std::vector<std::string>>("checkpoint", kClassNamesKey,
                                                 data::parse_json("checkpoint", kClassNamesKey, found->second));
}

std::string class_difference(const std::vector<std::string>& of_training, const data::DatasetInfo& dataset) {
  const std::vector<std::string>& now = dataset.class_names;
  if (of_training.empty() || of_training == now) {
    return "";
  }
  if (of_training.size() != now.size()) {
    return fmt::format("the network was trained on {} classes, and dataset '{}' has {}", of_training.size(),
                       dataset.name, now.size());
  }
  size_t first = 0;
  size_t count = 0;
  for (size_t i = now.size(); i-- > 0;) {
    if (now[i] != of_training[i]) {
      first = i;
      ++count;
    }
  }
  return fmt::format(
      "{} of {} classes have other names than in training: class {} was '{}' and is '{}' in dataset '{}'", count,
      now.size(), first, excerpt(of_training[first]), excerpt(now[first]), dataset.name);
}

std::string empty_classes_text(const data::DatasetInfo& test) {
  return test.empty_classes.empty() ? ""
                                    : fmt::format("no test images of {} of {} classes: {}", test.empty_classes.size(),
                                                  test.num_classes(), excerpt_list(test.empty_classes));
}

std::string skipped_text(const data::Dataset& dataset) {
  const std::vector<std::string> files = dataset.skipped();
  if (files.empty()) {
    return "";
  }
  const bool one = files.size() == 1;
  return fmt::format("{} image{} could not be decoded, and the next one took {} place: {}", files.size(),
                     one ? "" : "s", one ? "its" : "their", excerpt_list(files));
}

}  // namespace norma::train
