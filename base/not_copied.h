#pragma once

#include <utility>

namespace norma {

/// A class that derives from it is neither copied nor moved.
class NotCopied {
 public:
  NotCopied(const NotCopied&) = delete;
  NotCopied& operator=(const NotCopied&) = delete;

 protected:
  NotCopied() = default;
  ~NotCopied() = default;
};

/// Gives a variable another value for as long as it lives.
template <class T>
class Temporarily : NotCopied {
 public:
  Temporarily(T& variable, T value) : variable_(variable), before_(std::exchange(variable, std::move(value))) {}
  ~Temporarily() { variable_ = std::move(before_); }

 private:
  T& variable_;
  T before_;
};

}  // namespace norma
