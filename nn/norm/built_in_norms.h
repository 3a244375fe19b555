#pragma once

#include "nn/norm/factory.h"

namespace norma::nn {

/// Norms by name, in the order in which they are shown.
using NormRegistry = std::vector<std::pair<std::string, NormDefinition>>;

/// Every norm that can stand in a network in place of another.
NormRegistry built_in_norms();

}  // namespace norma::nn
