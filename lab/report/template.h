#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <string_view>

namespace norma::lab {

/// The page's template and its style sheet: lab/report/page.html and page.css.
std::string_view page_template();
std::string_view page_style();

/// Fills a part of a template, which begins after a line {{=part}} and ends before the next one, with values:
///
/// - {{name}} is a value as text, with HTML's characters escaped, and {{{name}}} is one as it is. A name that the
///   innermost object lacks is looked for in those around it; {{.}} is the element of a list.
/// - {{#name}}…{{/name}} stands once for each element of a list, once for another value that is not empty or false, and
///   not at all where the innermost object has none; {{^name}}…{{/name}} stands where the other does not. No section
///   holds one of the same name.
/// - {{>part}} is another part with the same values.
///
/// Throws Error "template: …" for a name or part that is nowhere, and for a {{ without its end.
std::string fill(std::string_view text, std::string_view part, const nlohmann::json& values);

}  // namespace norma::lab
