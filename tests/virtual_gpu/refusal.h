#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace virtual_gpu {

/// The answer of a library's call that does not succeed. The entry points turn it into the status, and keep the text
/// for whoever asks. `Status`: cudnnStatus_t or cublasStatus_t.
template <class Status>
class Refusal : public std::runtime_error {
 public:
  Refusal(Status status, const std::string& text) : std::runtime_error(text), status_(status) {}
  [[nodiscard]] Status status() const { return status_; }

 private:
  Status status_;
};

template <class Status, class... Args>
[[noreturn]] void refuse(Status status, fmt::format_string<Args...> text, Args&&... args) {
  throw Refusal<Status>(status, fmt::format(text, std::forward<Args>(args)...));
}

/// Refuses with the status unless the condition holds.
template <class Status, class... Args>
void expect(bool condition, Status status, fmt::format_string<Args...> text, Args&&... args) {
  if (!condition) {
    throw Refusal<Status>(status, fmt::format(text, std::forward<Args>(args)...));
  }
}

}  // namespace virtual_gpu
