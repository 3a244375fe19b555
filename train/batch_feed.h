#pragma once

#include "core/device.h"
#include "core/upload.h"
#include "data/loader.h"

#include <exception>
#include <functional>
#include <optional>

namespace norma::train {

/// The batches of a run with their images on the device. They travel there while the device makes the step before,
/// where it can do both.
class BatchFeed {
 public:
  /// `load` gives the next batch, or none at the end.
  BatchFeed(std::function<std::optional<data::Batch>()> load, Device device);

  /// The next batch; none at the end.
  std::optional<data::Batch> next();
  /// Call it when the device has the work of a step, and before the host waits for it: takes the next batch and sends
  /// its images. Does nothing where the device's copies are done at once. An error of it is thrown by next().
  void send_next();

 private:
  std::optional<data::Batch> take();

  std::function<std::optional<data::Batch>()> load_;
  Upload upload_;
  bool sent_ = false;
  std::optional<data::Batch> next_;  // with sent_
  std::exception_ptr failed_;        // with sent_, or null
};

}  // namespace norma::train
