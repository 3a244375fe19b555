#include "base/excerpt.h"
#include "base/lists.h"
#include "base/nearest_name.h"
#include "core/autocast.h"

#include <fnmatch.h>

#include <array>
#include <string>

namespace norma {

namespace {

using Rules = std::map<std::string, CastRule, std::less<>>;

/// The ops that are known, with their rules by default.
Rules& defaults() {
  static Rules rules;
  return rules;
}

constexpr std::array kRules = {CastRule::lower, CastRule::float32, CastRule::keep};

}  // namespace

std::string_view to_string(CastRule rule) {
  switch (rule) {
    case CastRule::lower: return "lower";
    case CastRule::float32: return "float32";
    case CastRule::keep: return "keep";
  }
  return "?";
}

CastRule cast_rule_from_string(std::string_view name) {
  for (const CastRule rule : kRules) {
    if (to_string(rule) == name) {
      return rule;
    }
  }
  fail("cast policy", "expected lower, float32 or keep, got '{}'", excerpt(name));
}

bool CastPolicy::add(std::string_view op, CastRule by_default) {
  defaults().emplace(op, by_default);
  return true;
}

std::vector<std::string> CastPolicy::ops() {
  return mapped(defaults(), [](const auto& rule) { return rule.first; });
}

void CastPolicy::set(std::string_view pattern, CastRule rule) {
  const std::string text(pattern);
  bool used = false;
  for (const auto& [op, by_default] : defaults()) {
    if (fnmatch(text.c_str(), op.c_str(), 0) != 0) {
      continue;
    }
    used = true;
    if (rule == by_default) {
      changed_.erase(op);
    } else {
      changed_[op] = rule;
    }
  }
  if (!used) {
    fail("cast policy", "{}", unknown_name("op", pattern, ops()));
  }
}

std::optional<CastRule> CastPolicy::find(std::string_view op) const {
  if (const auto changed = changed_.find(op); changed != changed_.end()) {
    return changed->second;
  }
  const auto found = defaults().find(op);
  return found == defaults().end() ? std::nullopt : std::optional(found->second);
}

CastRule CastPolicy::rule(std::string_view op) const {
  const std::optional<CastRule> found = find(op);
  if (!found) {
    fail("cast policy", "{}", unknown_name("op", op, ops()));
  }
  return *found;
}

}  // namespace norma
