#pragma once

#include <CLI/CLI.hpp>

#include <memory>

namespace norma::cli {

/// Help with one line for an option and its value, the description wrapped beside it, and the default in brackets at
/// the end.
std::shared_ptr<CLI::Formatter> help_formatter();

}  // namespace norma::cli
