#pragma once

#include "core/excerpt.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <string_view>
#include <utility>

namespace norma::train {

/// Writes to a stream and flushes it. What cannot be written (a full disk, a pipe whose reader is gone) must not cost
/// the work of hours: it does not throw, and the first failure is kept for output_error().
void put(std::FILE* out, std::string_view text);

/// put() to the standard output, as plain_text(): names in it may be anybody's.
template <class... Args>
void say(fmt::format_string<Args...> text, Args&&... args) {
  put(stdout, plain_text(fmt::format(text, std::forward<Args>(args)...)));
}

/// The same to the standard error, on a line of its own: "norma: train: warning: …".
template <class... Args>
void warn(std::string_view op, fmt::format_string<Args...> text, Args&&... args) {
  put(stderr,
      fmt::format("norma: {}: warning: {}\n", op, excerpt(fmt::format(text, std::forward<Args>(args)...), 10000)));
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

/// Throws Error when one of the files that are to be written into a folder is there already.
void check_free(std::string_view op, const std::filesystem::path& folder, std::initializer_list<const char*> names);

/// Throws Error when there is a file of this name and it is not what would be written over: is_former() gets its first
/// bytes. `kind` is for the text: "a result of 'norma bench'". An empty file is nobody's.
void check_replaceable(std::string_view op, const std::filesystem::path& file, std::string_view kind,
                       const std::function<bool(std::string_view beginning)>& is_former);

/// Throws Error when `output`, which is to be written, is `input`, under whatever names and links, there or not; the
/// other two are what users call them: "--output".
void check_other_file(std::string_view op, std::string_view output_name, const std::filesystem::path& output,
                      std::string_view input_name, const std::filesystem::path& input);

/// Writes a whole text file: under a temporary name first, so that a file of this name is replaced by all of `text` or
/// stays as it was. Throws as cannot_write().
void write_text_file(std::string_view op, const std::filesystem::path& file, std::string_view text);

}  // namespace norma::train
