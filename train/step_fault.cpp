#include "train/step_fault.h"

#include "core/allocator.h"
#include "core/anomaly.h"
#include "core/copy.h"
#include "core/error.h"
#include "core/tape.h"
#include "train/layer_nodes.h"

#include <fmt/format.h>

#include <cstddef>
#include <new>
#include <utility>

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
