#include "cli/options.h"
#include "number_of_fields.h"

#include <doctest/doctest.h>

#include <string>

using namespace norma;

TEST_CASE("norma: each option of how it runs is a field and a row of the table") {
  constexpr size_t kPlugins = 1;  // of an option of their own
  CHECK(cli::run_options().size() + kPlugins == test::number_of_fields<cli::RunOptions>());
}

TEST_CASE("norma: options of how it runs take words, and args.toml has them") {
  const cli::RunOptions defaults;
  for (const cli::RunOption& option : cli::run_options()) {
    CAPTURE(option.name);
    CHECK_FALSE(option.commands.empty());
    cli::RunOptions options;
    const bool is_number = std::holds_alternative<cli::RunOption::Number>(option.field);
    const train::OptionRow row = option.row(options);
    CHECK(row.take(row.is_switch() ? "true" : is_number ? "7" : "seven"));
    CHECK(option.toml(options) == (row.is_switch() ? "true" : is_number ? "7" : "\"seven\""));
    CHECK(option.toml(options) != option.toml(defaults));
    const std::string line = option.name + " = " + option.toml(options) + "\n";
    CHECK(options.config_text() == (option.from_file == cli::FromFile::none ? "" : line));
    if (is_number) {
      CHECK_FALSE(row.take("-1"));
      CHECK_FALSE(row.take("many"));
    }
  }
}
