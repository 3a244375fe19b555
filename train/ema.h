#pragma once

#include "nn/module.h"

#include <cstdint>
#include <set>
#include <string>

namespace norma::train {

struct EmaOptions {
  double decay = 0.9998;
  bool warmup = false;                  ///< the decay rises from 0 to `decay`: 1 - n^(-2/3) in update n, from 1
  std::set<std::string> constant = {};  ///< names of tensors whose averages stay as at update 1
};

/// An exponential moving average of a state dict, as timm's ModelEmaV3: after each update average = decay · average +
/// (1 - decay) · value, and after the first the value itself. It averages floating tensors; of others (counters) it
/// keeps the last value. The averages lie on the values' devices, in float32 or float64.
class Ema {
 public:
  explicit Ema(const EmaOptions& options) : options_(options) {}

  /// The decay of update number `update`; the first of a run is 1.
  [[nodiscard]] double decay(int64_t update) const;
  /// Takes in the values after update number `update`. They have the same names every time. Throws Error unless the
  /// first call is for update 1, or averages were loaded.
  void update(const nn::NamedTensors& values, int64_t update);

  // For a step that is recorded once and launched many times (core/device_graph.h), after the first update().
  // set_share() comes before the recording and before each launch.

  /// Copies the share of new values in update number `update` to the device.
  void set_share(int64_t update);
  /// As update(), for a recording. `guard`, two float64 numbers on the device: unless both are finite, nothing changes.
  void record_update(const nn::NamedTensors& values, const Tensor& guard);

  /// The averages, which share memory with this; empty before the first update.
  [[nodiscard]] const nn::NamedTensors& averages() const { return averages_; }
  /// Goes on from saved averages. It copies them to the devices, dtypes and strides of `like`, a state dict. Throws one
  /// Error that lists the missing, unexpected and misshapen names.
  void load(const nn::NamedTensors& saved, const nn::NamedTensors& like);

 private:
  void average(const nn::NamedTensors& values, const Tensor& share, const Tensor& guard);

  EmaOptions options_;
  nn::NamedTensors averages_;
  Tensor share_;  // of set_share()
};

}  // namespace norma::train
