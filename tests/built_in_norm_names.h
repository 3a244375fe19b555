#pragma once

#include "nn/norm/factory.h"

#include <string>
#include <vector>

namespace norma::test {

/// The names of Norma's own norms. nn::norm_names() has those, too, that other test cases of the same process have
/// registered.
inline std::vector<std::string> built_in_norm_names() {
  std::vector<std::string> names;
  for (const auto& [name, definition] : nn::built_in_norms()) {
    names.push_back(name);
  }
  return names;
}

}  // namespace norma::test
