#pragma once

#include "data/dataset.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace norma::test {

/// A dataset of square grey images of two classes; what is in them is up to load().
class TwoClasses : public data::Dataset {
 public:
  TwoClasses(std::string name, int64_t size, int64_t side, std::vector<std::string> classes = {"even", "odd"}) {
    info_.name = std::move(name);
    info_.size = size;
    info_.height = info_.width = side;
    info_.class_names = std::move(classes);
    info_.mean = {0.5F};
    info_.std = {0.25F};
  }
  [[nodiscard]] const data::DatasetInfo& info() const override { return info_; }

 private:
  data::DatasetInfo info_;
};

}  // namespace norma::test
