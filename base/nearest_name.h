#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace norma {

/// The known name with the smallest edit distance (insertions, deletions, replacements and swaps of neighbours, letter
/// case ignored) to `given`; the first of equally near ones. "" when there are no known names.
std::string nearest_name(std::string_view given, const std::vector<std::string>& known);

/// "unknown norm 'bath'; did you mean 'batch'?", where `kind` is "norm".
std::string unknown_name(std::string_view kind, std::string_view given, const std::vector<std::string>& known);

/// Throws Error "op: argument: unknown KIND …" for a name that is not known, and for one that comes twice.
void check_names(std::string_view op, std::string_view argument, std::string_view kind,
                 const std::vector<std::string>& given, const std::vector<std::string>& known);

/// "batch, group or layer2d"
std::string or_list(const std::vector<std::string>& names);

}  // namespace norma
