#pragma once

#include "lab/report/report.h"

#include <nlohmann/json.hpp>

#include <string>

namespace norma::lab {

/// Comparison::source_classes and Comparison::sources as JSON.
nlohmann::ordered_json source_to_json(const Comparison& comparison);
/// Reads what source_to_json() wrote. Throws Error that begins with `where` for anything else.
void read_source(const nlohmann::json& json, const std::string& where, Comparison& comparison);

}  // namespace norma::lab
