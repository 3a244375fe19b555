#pragma once

#include "lab/telemetry/telemetry.h"

#include <nlohmann/json_fwd.hpp>

#include <string>

namespace norma::lab {

/// Lists of equal structs are written as an object of columns. Numbers that are no counts have six digits, those of
/// layers four, since a report may hold hundreds of records. NaN and infinity are null.
nlohmann::ordered_json telemetry_to_json(const Telemetry& telemetry);
/// telemetry_to_json() as text.
std::string telemetry_text(const Telemetry& telemetry);
/// Reads such a record. Throws Error that begins with `where` for anything else.
Telemetry telemetry_from_json(const nlohmann::json& json, const std::string& where);

}  // namespace norma::lab
