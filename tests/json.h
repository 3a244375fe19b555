#pragma once

#include "data/json.h"

#include <string>
#include <string_view>

namespace norma::test {

/// The JSON in a text; an Error for one that is none. json::parse() would compile the parser anew in each file.
inline nlohmann::json parse_json(std::string_view text) {
  return data::parse_json("test", "the text", text);
}

}  // namespace norma::test
