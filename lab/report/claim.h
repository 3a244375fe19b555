#pragma once

#include "lab/report/report.h"
#include "lab/studies/study.h"

#include <optional>
#include <string>

namespace norma::lab {

/// The claim of a comparison's study, of Norma's or of a file of the user's; none for a study that only asks.
std::optional<Claim> claim_of(const Comparison& comparison);

struct Verdict {
  enum class State : uint8_t {
    waiting,  ///< runs may still come
    undecided,
    contradicted,
    supported,
  };
  State state = State::waiting;
  std::string text;  ///< for people: the word, and the differences that it follows from
};

/// The verdict on a claim. An expectation of more or less holds where a difference of its sign is found; it is
/// contradicted where the opposite is found, or where the difference is shown to be within kEqualPoints and none is
/// found. One of none holds where the difference is shown to be within kEqualPoints, and is contradicted where another
/// is found. One of not_more holds where the interval ends below kEqualPoints, and is contradicted where a difference
/// above that is found. One of any holds where a difference is found, and is never contradicted. The claim is supported
/// if all expectations hold in all networks, and contradicted if one is; without the runs of one of them it is not
/// supported. All intervals hold together (decision.h).
Verdict verdict_on(const Claim& claim, const Comparison& comparison);

/// The claim of a comparison's study, its source, the setting, the verdict and the accuracies beside it; "" without a
/// claim.
std::string claim_text(const Comparison& comparison);

}  // namespace norma::lab
