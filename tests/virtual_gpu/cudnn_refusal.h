#pragma once

#include <cudnn_graph.h>
#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace virtual_gpu {

/// The answer of a cuDNN call that does not succeed. The entry points turn it into the status and keep the text for
/// cudnnGetLastErrorString.
class Refusal : public std::runtime_error {
 public:
  Refusal(cudnnStatus_t status, const std::string& text) : std::runtime_error(text), status_(status) {}
  [[nodiscard]] cudnnStatus_t status() const { return status_; }

 private:
  cudnnStatus_t status_;
};

template <class... Args>
[[noreturn]] void refuse(cudnnStatus_t status, fmt::format_string<Args...> text, Args&&... args) {
  throw Refusal(status, fmt::format(text, std::forward<Args>(args)...));
}

/// Refuses with CUDNN_STATUS_BAD_PARAM, or one of its kind, unless the condition holds.
template <class... Args>
void expect(bool condition, cudnnStatus_t status, fmt::format_string<Args...> text, Args&&... args) {
  if (!condition) {
    throw Refusal(status, fmt::format(text, std::forward<Args>(args)...));
  }
}

}  // namespace virtual_gpu
