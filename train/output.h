#pragma once

#include <filesystem>
#include <string_view>

namespace norma::train {

/// Throws Error "op: cannot write FILE: " and the system's text for `error`, a value of errno.
[[noreturn]] void cannot_write(std::string_view op, const std::filesystem::path& file, int error);

/// Makes a folder and those above it, and tries whether a file can be made in it. Throws as cannot_write().
void make_output_folder(std::string_view op, const std::filesystem::path& folder);

/// Writes a whole text file: under a temporary name first, so that a file of this name is replaced by all of `text` or
/// stays as it was. Throws as cannot_write().
void write_text_file(std::string_view op, const std::filesystem::path& file, std::string_view text);

}  // namespace norma::train
