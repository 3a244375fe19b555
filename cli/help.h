#pragma once

#include <CLI/CLI.hpp>

#include <string>

namespace norma::cli {

/// Help with one line for an option and its value, what it does wrapped beside it, and the default in brackets at the
/// end.
class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter();

 protected:
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
  std::string make_subcommand(const CLI::App* subcommand) const override;
};

}  // namespace norma::cli
