#pragma once

#include <CLI/CLI.hpp>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

// What option.cpp, which makes the options, and option_words.cpp, which checks what was given, share.

namespace norma::cli {

/// What CLI11 has no place for.
struct OptionNotes {
  std::map<const CLI::Option*, std::string> expected;  ///< "a whole number from 1 to 8"; switches have none
  std::vector<std::pair<const CLI::App*, std::vector<std::string>>> exclusive;
  std::set<const CLI::Option*> from_file;  ///< given by a line of a file, not on the command line
};

OptionNotes& notes();

/// A value as a message shows it: on one line, and not the whole of a long one.
std::string shown(const std::string& text);

}  // namespace norma::cli
