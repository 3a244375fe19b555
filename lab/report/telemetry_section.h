#pragma once

#include "lab/report/page.h"
#include "lab/report/report.h"
#include "lab/telemetry/telemetry.h"

#include <string>
#include <vector>

namespace norma::lab {

/// A record as a page names it.
struct NamedTelemetry {
  std::string group;  ///< what is compared with each other: "resnet18", "resnet18 with batch size 4"
  std::string label;  ///< in its group: "group:32"
  const Telemetry* telemetry;
};

/// The record of each row of a comparison, which must outlive it: that of the first finished seed, else of one that
/// failed.
std::vector<NamedTelemetry> named_telemetry(const Comparison& comparison);

/// Sections of the page: where the time of a step goes and what its layers keep, which implicit copies are made, how
/// the numbers in the layers look. Without records their HTML is "".
std::vector<PageSection> telemetry_sections(const std::vector<NamedTelemetry>& runs);

}  // namespace norma::lab
