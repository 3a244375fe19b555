#pragma once

#include "lab/telemetry/telemetry.h"

#include <nlohmann/json_fwd.hpp>

#include <string>

namespace norma::lab {

/// Lists of equal things are written as an object of columns, numbers that are no counts with six digits, those
/// found in layers with four: a report may hold hundreds of records. What is not a number is null.
nlohmann::ordered_json telemetry_to_json(const Telemetry& telemetry);
/// The same as text.
std::string telemetry_text(const Telemetry& telemetry);
/// Throws Error, with `where` before it, for what is no such record.
Telemetry telemetry_from_json(const nlohmann::json& json, const std::string& where);

}  // namespace norma::lab
