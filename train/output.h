#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <string_view>
#include <utility>

namespace norma::train {

/// Writes to a stream and flushes it. What cannot be written (a full disk, a pipe whose reader is gone) must not cost
/// the work of hours: it does not throw, and the first failure is kept for output_error().
void put(std::FILE* out, std::string_view text);

/// put() to the standard output.
template <class... Args>
void say(fmt::format_string<Args...> text, Args&&... args) {
  put(stdout, fmt::format(text, std::forward<Args>(args)...));
}

/// The value of errno of the first put() that failed; 0: none did.
int output_error();

/// True iff there is something of that name; false also where a part of its path is missing. Throws Error "op: cannot
/// read FILE: " and the system's text where that cannot be told: a loop of symbolic links, a folder without permission.
bool path_exists(std::string_view op, const std::filesystem::path& path);
/// The same for a folder of that name.
bool is_folder(std::string_view op, const std::filesystem::path& path);

/// Throws Error "op: cannot write FILE: " and the system's text for `error`, a value of errno.
[[noreturn]] void cannot_write(std::string_view op, const std::filesystem::path& file, int error);

/// Makes a folder and those above it, and tries whether a file can be made in it. Throws as cannot_write().
void make_output_folder(std::string_view op, const std::filesystem::path& folder);

/// Writes a whole text file: under a temporary name first, so that a file of this name is replaced by all of `text` or
/// stays as it was. Throws as cannot_write().
void write_text_file(std::string_view op, const std::filesystem::path& file, std::string_view text);

}  // namespace norma::train
