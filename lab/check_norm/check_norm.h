#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace norma::lab {

// Whether a norm, most of all one of a user's own, is right: what `norma check-norm` does.

enum class CheckOutcome : uint8_t {
  passed,
  failed,
  noted,  ///< neither right nor wrong, but good to know
};

/// One thing that was looked at.
struct NormCheck {
  std::string name;  ///< "gradients"
  CheckOutcome outcome = CheckOutcome::passed;
  std::string text;  ///< what is wrong, or what was found
};

struct NormCheckReport {
  std::string norm;
  std::vector<NormCheck> checks;

  /// True iff none has failed.
  [[nodiscard]] bool passed() const;
};

struct CheckNormOptions {
  bool quick = false;  ///< without networks and speed
  /// Gets the name of each check before it begins.
  std::function<void(const std::string& name)> progress = {};
};

/// Checks a norm spec (nn/norm/factory.h) on small inputs (N, C, H, W) with 8 channels, or up
/// to 64 where its groups want them: sizes, memory formats, dtypes, gradients by
/// finite differences, second derivatives, copies, exactness, repeatability, saving, two steps in each family of
/// networks, and its speed beside a copy. What the norm throws is a failed check. Throws Error for an unknown norm.
NormCheckReport check_norm(const std::string& norm, const CheckNormOptions& options = {});

/// A line for each check.
std::string to_text(const NormCheckReport& report);

}  // namespace norma::lab
