#pragma once

#include <string_view>

namespace norma {

/// "MAJOR.MINOR.PATCH" of the library that is linked, as in CMakeLists.txt.
std::string_view version();

}  // namespace norma
