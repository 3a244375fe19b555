#include "train/step_fault.h"

#include "core/allocator.h"
#include "core/anomaly.h"
#include "core/copy.h"
#include "core/error.h"
#include "core/tape.h"
#include "ops/optimizer/optimizer.h"
#include "train/layer_nodes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <new>
#include <utility>
#include <vector>

namespace norma::train {

void KeptBuffers::take(const nn::Module& model) {
  const nn::NamedTensors buffers = model.named_buffers();
  copies_.resize(buffers.size());
  for (size_t i = 0; i < buffers.size(); ++i) {
    const auto& [name, x] = buffers[i];
    auto& [kept_name, copy] = copies_[i];
    if (copy.defined() && kept_name == name) {
      copy_into(x.detach(), copy);
    } else {
      copies_[i] = {name, copy_of(x.detach())};
    }
  }
}

void KeptBuffers::put_back(const nn::Module& model) const {
  const nn::NamedTensors buffers = model.named_buffers();
  for (size_t i = 0; i < buffers.size(); ++i) {
    copy_into(copies_.at(i).second, buffers[i].second.detach());
  }
}

bool gradients_are_finite(const Tensors& parameters) {
  Tensors gradients;
  for (const Tensor& x : parameters) {
    if (x.grad().defined()) {
      gradients.push_back(x.grad());
    }
  }
  if (gradients.empty()) {
    return true;
  }
  const std::vector<double> squares = sums_of_squares(gradients, gradients[0].device()).to_vector<double>();
  return std::all_of(squares.begin(), squares.end(), [](double square) { return std::isfinite(square); });
}

std::string find_fault(const nn::Module& model, const std::function<void()>& forward_and_backward) {
  LayerNodes layers(model);
  for (const auto& [name, x] : model.named_parameters()) {
    try {
      check_forward_is_finite(name, {x.detach()});
    } catch (const NotFinite&) {
      return fmt::format("the update before made {} infinite or NaN", name);
    }
  }
  try {
    const AnomalyGuard search;
    forward_and_backward();
  } catch (const NotFinite& found) {
    const std::string layer = found.node() ? layers.layer_of(*found.node()) : layers.failed();
    return fmt::format("{}{}", layer.empty() ? "" : layer + ": ", found.what());
  } catch (const OutOfMemory&) {
  } catch (const std::bad_alloc&) {
  }
  return "";
}

}  // namespace norma::train
