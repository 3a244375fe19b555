#pragma once

#include "nn/module.h"

#include <functional>
#include <string>

namespace norma::train {

/// The buffers of a network (running statistics) as they were, for a step that is left out or done again.
class KeptBuffers {
 public:
  /// Copies them. Memory is taken the first time, for the same network.
  void take(const nn::Module& model);
  /// Puts the last copies back into the network.
  void put_back(const nn::Module& model) const;

 private:
  nn::NamedTensors copies_;
};

/// Does a step of training again while every op is searched for NaN and infinities (AnomalyGuard), and says which was
/// the first to give one: "layer1.0.conv1: conv2d: forward gave Inf in output 0 (…), element 5", with the layer that
/// the op belongs to. A parameter that is not finite before the step is named instead. "" where nothing is found, and
/// where memory does not suffice for the search.
std::string find_fault(const nn::Module& model, const std::function<void()>& forward_and_backward);

}  // namespace norma::train
