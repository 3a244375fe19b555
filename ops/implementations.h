#pragma once

#include "base/error.h"
#include "core/dtype.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace norma::kernels {

/// True iff the environment's `variable` asks for the definition of an op in place of its kernels. Throws Error of `op`
/// if it says something else than "reference".
inline bool reference_in_environment(std::string_view op, const char* variable) {
  const char* const name = std::getenv(variable);
  const std::string_view chosen = name == nullptr ? "" : name;
  check(chosen.empty() || chosen == "reference", op, "{}: expected reference, got {}", variable, chosen);
  return !chosen.empty();
}

/// The implementations of one op on one device: libraries and our own kernels, in the order in which they are tried. T
/// has a name and a function supports(case, …); a case has a dtype.
template <class T>
class Implementations {
 public:
  /// `all` holds null for implementations that this build lacks. The environment's `variable` may force one by name.
  /// `through_float` does the 16-bit cases that no other does. `modes` are names that force none, for the op itself.
  Implementations(std::string_view op, const char* variable, std::vector<const T*> all, const T& through_float,
                  std::vector<std::string> modes = {})
      : op_(op), variable_(variable), all_(std::move(all)), through_float_(&through_float), modes_(std::move(modes)) {
    std::erase(all_, nullptr);
  }

  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const T* implementation : all_) {
      names.emplace_back(implementation->name);
    }
    return names;
  }

  /// Forces an implementation in all cases that it supports; "" and a mode return to the order. Throws Error for an
  /// unknown name.
  void force(const std::string& name) {
    const T* const found = find(name);
    read_environment();
    take(found, name);
  }
  /// What force() or the environment named last; "" if neither did.
  [[nodiscard]] const std::string& chosen() {
    read_environment();
    return chosen_;
  }
  /// The number of the mode that was named last; 0 if none was.
  [[nodiscard]] size_t mode() {
    read_environment();
    return mode_;
  }
  /// Null if none is forced.
  [[nodiscard]] const T* forced() {
    read_environment();
    return forced_;
  }

  /// The forced implementation if it supports the case, else the first that does. If the forced one supports a 16-bit
  /// case in float32 only, `through_float` does it.
  template <class Case, class... More>
  const T& choose(const Case& wanted, More... more) {
    Case wide = wanted;
    wide.dtype = compute_dtype(wanted.dtype);
    if (forced() != nullptr && forced()->supports(wide, more...)) {
      return forced()->supports(wanted, more...) ? *forced() : *through_float_;
    }
    for (const T* implementation : all_) {
      if (implementation->supports(wanted, more...)) {
        return *implementation;
      }
    }
    return *through_float_;
  }

 private:
  const T* find(const std::string& name) const {
    if (name.empty() || std::ranges::find(modes_, name) != modes_.end()) {
      return nullptr;
    }
    for (const T* implementation : all_) {
      if (implementation->name == name) {
        return implementation;
      }
    }
    std::vector<std::string> all = names();
    all.insert(all.end(), modes_.begin(), modes_.end());
    fail(op_, "implementation: expected one of {}, got {}", fmt::join(all, ", "), name);
  }

  /// Runs at the first use, so that a wrong name is an error of the op and not of the program's start.
  void read_environment() {
    std::call_once(environment_is_read_, [this] {
      const char* const name = std::getenv(variable_);
      const std::string given = name == nullptr ? "" : name;
      take(find(given), given);
    });
  }

  void take(const T* found, const std::string& name) {
    forced_ = found;
    chosen_ = name;
    const auto place = std::ranges::find(modes_, name);
    mode_ = place == modes_.end() ? 0 : static_cast<size_t>(place - modes_.begin());
  }

  std::string_view op_;
  const char* variable_;
  std::vector<const T*> all_;
  const T* through_float_;
  std::vector<std::string> modes_;
  std::string chosen_;
  std::once_flag environment_is_read_;
  const T* forced_ = nullptr;
  size_t mode_ = 0;
};

}  // namespace norma::kernels
