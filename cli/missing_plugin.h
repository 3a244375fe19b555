#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace norma::cli {

/// Throws Error "OP: norm 'my' comes from a plug-in: add --plugin FILE" for a norm that nobody has registered, in a run
/// that was started with these plug-ins. Without any, a name is simply wrong, and others say so.
void check_norm_is_loaded(std::string_view op, const std::string& norm, const std::vector<std::string>& plugins);

/// The plug-ins with which the run was started whose checkpoint this is: those of the args.toml beside it, if there is
/// one.
std::vector<std::string> plugins_beside(const std::filesystem::path& checkpoint);

}  // namespace norma::cli
