#pragma once

#include <CLI/CLI.hpp>

#include <string>

namespace norma::cli {

/// The names of an option: "-b, --batch-size", "--[no-]flip".
std::string shown_names(const CLI::Option& option);
/// The word for the option's value: "N", "FILE"; "" for a switch.
std::string value_name(const CLI::Option& option);
/// The option's description, with its default in brackets.
std::string shown_text(const CLI::Option& option);

/// Help with one line for an option and its value, the description wrapped beside it, and the default in brackets at
/// the end.
class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter();

 protected:
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
  std::string make_subcommand(const CLI::App* subcommand) const override;
};

}  // namespace norma::cli
