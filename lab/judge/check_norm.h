#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace norma::lab {

// `norma check-norm`: finds out if a norm is right, above all one of a user's own.

enum class CheckOutcome : uint8_t {
  passed,
  failed,
  noted,  ///< neither right nor wrong, but good to know
};

/// One check and its outcome.
struct NormCheck {
  std::string name;  ///< "gradients"
  CheckOutcome outcome = CheckOutcome::passed;
  std::string text;  ///< the fault, or the figure found
};

/// What float32 makes of one of the hard inputs of `norma audit`.
struct HardInput {
  std::string name;                     ///< "offset_1e4"
  std::map<std::string, double> steps;  ///< the worst error of output, dx, dweight, dbias: as audit's table has it
};

struct NormCheckReport {
  std::string norm;
  std::vector<NormCheck> checks;
  std::vector<HardInput> hard_inputs =
      {};  ///< of the check of exactness; empty for a norm, or parameters, that audit has not

  /// True iff none has failed.
  [[nodiscard]] bool passed() const;
};

struct CheckNormOptions {
  bool quick = false;     ///< without networks and speed
  std::string like = {};  ///< a norm spec: also check that the norm gives the same outputs and gradients as this one
  /// Gets the name of each check before it begins.
  std::function<void(const std::string& name)> progress = {};
};

/// Checks a norm spec (nn/norm/factory.h) on small inputs (N, C, H, W) with 8 channels, or up to 256 if its groups, or
/// sets of at least 16 numbers, need them. The checks: sizes, memory formats, dtypes, gradients by finite differences,
/// second derivatives, copies, exactness, repeatability, running statistics, saving, two steps in each family of
/// networks, and its speed beside a copy; with `like`, first whether it is that norm. An exception from the norm is a
/// failed check. After a signal (session/interrupt.h) it begins no further check. Throws Error for an unknown norm.
NormCheckReport check_norm(const std::string& norm, const CheckNormOptions& options = {});

/// A line for each check.
std::string to_text(const NormCheckReport& report);

}  // namespace norma::lab
