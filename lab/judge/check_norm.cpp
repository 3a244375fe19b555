#include "lab/judge/check_norm.h"

#include "lab/judge/subject.h"
#include "lab/report/table.h"
#include "session/interrupt.h"

#include <algorithm>
#include <exception>

namespace norma::lab {

namespace {

struct Item {
  const char* name;
  Finding (*look)(const Subject& subject);
  bool quick;  ///< runs with `quick`, too
};

constexpr Item kItems[] = {
    {"sizes", check_sizes, true},
    {"memory formats", check_formats, true},
    {"dtypes", check_dtypes, true},
    {"gradient of x", check_gradients, true},
    {"gradients of parameters", check_parameter_gradients, true},
    {"second derivatives", check_second_derivatives, true},
    {"copies", check_copies, true},
    {"exactness", check_exactness, true},
    {"repeatability", check_repeatability, true},
    {"evaluation", check_evaluation, true},
    {"running statistics", check_running_statistics, true},
    {"saving", check_saving, true},
    {"networks", check_networks, false},
    {"speed", check_speed, false},
};

const char* word_for(CheckOutcome outcome) {
  switch (outcome) {
    case CheckOutcome::passed: return "ok";
    case CheckOutcome::failed: return "FAILED";
    case CheckOutcome::noted: break;
  }
  return "note";
}

/// The first of some small numbers of channels that the norms take and whose sets have 16 numbers: with fewer,
/// rounding alone is much of a gradient. Without such a one, the first that the norms take; groups may not divide it.
int64_t channels_for(const std::vector<nn::NormChoice>& choices) {
  int64_t taken = 0;
  for (const int64_t channels : {8, 16, 32, 64, 128, 256}) {
    try {
      for (const nn::NormChoice& choice : choices) {
        nn::make_norm(choice, channels);
      }
      taken = taken == 0 ? channels : taken;
      int64_t least = kSetSize;
      for (const nn::NormChoice& choice : choices) {
        least = std::min(least, set_size({.choice = choice, .channels = channels}));
      }
      if (least == kSetSize) {
        return channels;
      }
    } catch (const std::exception&) {  // a user's norm may throw anything
      continue;
    }
  }
  return taken == 0 ? 8 : taken;  // the checks report the error
}

}  // namespace

bool NormCheckReport::passed() const {
  return std::ranges::none_of(checks, [](const NormCheck& one) { return one.outcome == CheckOutcome::failed; });
}

NormCheckReport check_norm(const std::string& norm, const CheckNormOptions& options) {
  const nn::NormChoice choice = nn::parse_norm(norm);
  const Subject subject{.choice = choice, .channels = channels_for({choice})};
  NormCheckReport report{.norm = norm, .checks = {}};
  const auto add = [&](const std::string& name, const auto& look) {
    if (train::interrupted()) {
      return;
    }
    if (options.progress) {
      options.progress(name);
    }
    try {
      Finding finding = look();
      report.checks.push_back({name, finding.outcome, finding.text});
      std::ranges::move(finding.hard_inputs, std::back_inserter(report.hard_inputs));
    } catch (const std::exception& error) {
      report.checks.push_back({name, CheckOutcome::failed, error.what()});
    }
  };
  if (!options.like.empty()) {
    const nn::NormChoice like = nn::parse_norm(options.like);
    const int64_t channels = channels_for({choice, like});
    add("like " + options.like, [&] {
      return check_likeness({.choice = choice, .channels = channels}, {.choice = like, .channels = channels});
    });
  }
  for (const Item& item : kItems) {
    if (!options.quick || item.quick) {
      add(item.name, [&] { return item.look(subject); });
    }
  }
  return report;
}

std::string to_text(const NormCheckReport& report) {
  Table table{.heads = {"check", "", ""}, .words = 3};
  for (const NormCheck& one : report.checks) {
    table.add(one.name, word_for(one.outcome), one.text);
  }
  return to_text(table);
}

}  // namespace norma::lab
