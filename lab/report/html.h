#pragma once

#include <string>
#include <string_view>

namespace norma::lab {

/// text with &, <, >, " and ' written as HTML wants them; control characters, which HTML may not have, are left out.
std::string escape_html(std::string_view text);

}  // namespace norma::lab
