#include "cli/option_table.h"

#include "cli/help.h"

#include <CLI/CLI.hpp>

namespace norma::cli {

namespace {

/// The kind of a value, by its word in --help.
ValueKind kind_of(const std::string& value) {
  if (value == "FOLDER" || value.starts_with("DIR")) {
    return ValueKind::folder;
  }
  const bool file = value == "PATH" || value.starts_with("CHECKPOINT") || value.starts_with("FILE") ||
                    value.find('.') != std::string::npos;
  return file ? ValueKind::file : ValueKind::text;
}

OptionRow row_of(const std::string& command, const CLI::Option& option) {
  OptionRow row;
  row.shown = shown_names(option);
  row.text = shown_text(option);
  row.heading = option.get_group();
  for (const std::string& name : option.get_snames()) {
    row.names.push_back("-" + name);
  }
  for (const std::string& name : option.get_lnames()) {
    row.names.push_back("--" + name);
    if (row.choices.empty()) {
      row.choices = option_choices(command, name);
    }
  }
  if (option.get_type_size() != 0 && !option.get_type_name().empty()) {  // else it is a switch
    row.value = option.get_type_name();
    row.kind = kind_of(row.value);
    // A list of names in one word, as --dynamics', is completed behind its commas, too.
    row.several = option.get_expected_max() > 1 || (row.value == "LIST" && !row.choices.empty());
  }
  return row;
}

CommandRow row_of(const CLI::App& app, const std::string& name) {
  CommandRow row{.name = name, .text = app.get_description(), .footer = app.get_footer(), .options = {}, .words = {}};
  for (const CLI::Option* option : app.get_options()) {
    OptionRow its = row_of(name, *option);
    if (option->get_positional()) {
      its.choices = option_choices(name, option->get_single_name());
      row.words.push_back(std::move(its));
    } else {
      row.options.push_back(std::move(its));
    }
  }
  return row;
}

}  // namespace

std::vector<CommandRow> option_table(const CLI::App& program) {
  std::vector<CommandRow> table{row_of(program, "")};
  for (const CLI::App* app : program.get_subcommands({})) {
    table.push_back(row_of(*app, app->get_name()));
  }
  return table;
}

}  // namespace norma::cli
