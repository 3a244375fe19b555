#pragma once

#include "lab/report/report.h"

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace norma::lab {

/// A difference that a claim speaks of: between a norm and another one, or the same one with other values on some axes.
/// With an `axis` it is an interaction: the difference at one value of the axis is compared with that at another.
struct Expectation {
  enum class Sign : uint8_t {
    more,
    less,
    none,      ///< within kEqualPoints
    not_more,  ///< less than kEqualPoints
    any,       ///< one of either sign, without which the claim cannot be weighed
  };
  enum class Measure : uint8_t {
    accuracy,       ///< on the test images, in points
    training_loss,  ///< Cell::fit, in tenths, so that kEqualPoints are a loss of 0.03
  };
  std::string norm;
  std::string reference;
  Sign sign = Sign::more;
  std::string axis = {};  ///< of option_axes(); "": the difference itself, with whatever else the comparison has
  /// The value of the axis at which the difference is expected to be more, or less, than at the second one. "": the
  /// smallest number that the comparison has there, and the largest. 0 training images are all of them.
  std::string at = {};
  std::string than = {};
  Measure measure = Measure::accuracy;
  /// Values of the norm's runs, and those of the reference's, by the names of option_axes() or "lr". The same axes in
  /// both; empty: all values that the comparison has.
  std::map<std::string, std::string> with = {};
  std::map<std::string, std::string> reference_with = {};
};

/// What a paper says, as far as a comparison of small networks can show it.
struct Claim {
  std::string study;                      ///< `norma compare --study`
  std::string sentence;                   ///< with a subject and a verb, without a full stop
  std::string source;                     ///< "arXiv 2503.10622"
  std::string setting;                    ///< what is other than there
  std::vector<Expectation> expectations;  ///< all must hold
  /// An axis of option_axes(): claim_text() names the accuracy of each norm at each of its values, too. "": of none.
  std::string beside = {};
};

/// The claims that have a study.
const std::vector<Claim>& claims();
/// The claim of a study; nullptr for a study that only asks.
const Claim* claim_of(std::string_view study);

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
