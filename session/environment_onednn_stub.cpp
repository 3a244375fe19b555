#include "session/environment.h"

namespace norma::train {

std::vector<std::pair<std::string, std::string>> compute_libraries() {
  return {};
}

}  // namespace norma::train
