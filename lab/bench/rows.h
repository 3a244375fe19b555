#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

// What the files with results of `norma bench` share: rows as JSON objects, whose keys are the columns.

namespace norma::lab::bench {

using Json = nlohmann::ordered_json;

/// One row as an object, or all as an array.
std::string to_json(const std::vector<Json>& rows);
/// A line for each row under the columns of all rows.
std::string to_csv(const std::vector<Json>& rows);

}  // namespace norma::lab::bench
