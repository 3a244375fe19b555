#include "paths.h"

// The build gives these macros to this file alone: a flag of every test that names a folder would keep ccache from
// serving one tree what it compiled for another.

namespace norma::test {

std::filesystem::path source_folder() {
  return NORMA_SOURCE_DIR;
}

std::string norma_program() {
  return NORMA_PROGRAM;
}

std::filesystem::path plugin_folder() {
  return NORMA_PLUGINS;
}

}  // namespace norma::test
