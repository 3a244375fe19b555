#pragma once

#include <array>
#include <string>
#include <string_view>

namespace norma::lab {

/// The colours of the page on a light or a dark background, as "#rrggbb".
struct Theme {
  std::string_view text;
  std::string_view soft;   ///< text of less weight
  std::string_view warn;   ///< text about errors
  std::string_view line;   ///< rules and grids, which carry no meaning
  std::string_view back;   ///< behind the text
  std::string_view panel;  ///< behind charts and commands
  std::string_view focus;  ///< around the element with the keyboard's focus
  /// For the styles of charts. Colour-blind readers can tell them apart, as the palette of Okabe and Ito (2008); they
  /// are darker or lighter kin of it, so that each also works for text.
  std::array<std::string_view, 8> series;
};

const Theme& light_theme();
const Theme& dark_theme();

/// The style sheet of the report's page.
std::string page_style();

}  // namespace norma::lab
