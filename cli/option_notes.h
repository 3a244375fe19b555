#pragma once

#include <CLI/CLI.hpp>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

// The state that option.cpp, which makes the options, shares with option_words.cpp, which checks them.

namespace norma::cli {

/// Facts about options that CLI11 has no place for.
struct OptionNotes {
  std::map<const CLI::Option*, std::string> expected;  ///< "a whole number from 1 to 8"; switches have none
  std::vector<std::pair<const CLI::App*, std::vector<std::string>>> exclusive;
  std::set<const CLI::Option*> from_file;  ///< given by a line of a file, not on the command line
};

OptionNotes& notes();

/// A value for a message: on one line, and shortened if it is long.
std::string shown(const std::string& text);

}  // namespace norma::cli
