#pragma once

#include "lab/report/page.h"
#include "lab/report/report.h"
#include "lab/telemetry/telemetry.h"

#include <string>
#include <vector>

namespace norma::lab {

/// A record and its name on a page.
struct NamedTelemetry {
  std::string group;  ///< the runs that are compared with each other: "resnet18", "resnet18 with batch size 4"
  std::string label;  ///< in its group: "group:32"
  const Telemetry* telemetry;
};

/// The record of each row of a comparison, which must outlive it: the first finished seed's, else a failed one's.
std::vector<NamedTelemetry> named_telemetry(const Comparison& comparison);

/// Sections of the page: the parts of a step's time and the memory that its layers keep, implicit copies, and the
/// numbers in the layers. Without records their HTML is "".
std::vector<PageSection> telemetry_sections(const std::vector<NamedTelemetry>& runs);

}  // namespace norma::lab
