#include "lab/report/report.h"

#include "base/error.h"
#include "base/lists.h"
#include "base/quoting.h"
#include "data/json.h"
#include "lab/report/decisions.h"
#include "nn/norm/factory.h"
#include "train/recipe_option.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cmath>
#include <tuple>
#include <utility>

namespace norma::lab {

namespace {

Spread spread_of(const std::vector<double>& values) {
  const Scatter scatter = scatter_of(values);
  return {.mean = scatter.difference,
          .deviation = values.size() > 1 ? std::optional(std::sqrt(scatter.seed_variance)) : std::nullopt};
}

Row row_of(const std::vector<const Cell*>& cells) {
  Row row;
  static_cast<Settings&>(row) = *cells.front();
  row.seeds = static_cast<int64_t>(cells.size());
  std::vector<const Cell*> finished;
  for (const Cell* cell : cells) {
    if (cell->state == CellState::finished) {
      finished.push_back(cell);
    } else if (row.problem.empty()) {
      row.problem = problem_of(*cell);
    }
  }
  const auto over_seeds = [&](double Cell::*figure) { return spread_of(mapped(finished, figure)); };
  row.finished = static_cast<int64_t>(finished.size());
  row.accuracy = over_seeds(&Cell::accuracy);
  row.loss = over_seeds(&Cell::loss);
  row.images_per_second = over_seeds(&Cell::images_per_second);
  for (const Cell* cell : finished) {
    row.peak_bytes = std::max(row.peak_bytes, cell->peak_bytes);
    row.peak_resident = std::max(row.peak_resident, cell->peak_resident);
    row.parameters = cell->parameters;
  }
  std::erase_if(finished, [](const Cell* cell) { return !cell->fit; });
  if (!finished.empty()) {
    row.fit_loss = spread_of(mapped(finished, [](const Cell* cell) { return cell->fit->loss; }));
  }
  return row;
}

/// The text for unknown figures: "not known yet: 2 of 24 rounds", "not known after 2 seeds".
std::string not_known(const Decision& decision, std::string_view pair) {
  return decision.state == Decision::State::waiting
             ? fmt::format("not known yet: {} of {}", decision.pairs, counted(decision.planned, pair))
             : fmt::format("not known after {}", counted(decision.pairs, pair));
}

using Words = std::vector<std::string>;

void put(Words& words, const std::string& option, std::string value) {
  words.push_back("--" + option);
  words.push_back(std::move(value));
}

/// The options of all commands that compute.
void put_machine(Words& words, const train::Environment& environment) {
  for (const nn::PluginRecord& plugin : environment.plugins) {
    put(words, "plugin", plugin.file);
  }
  if (!environment.device.empty() && environment.device != "cpu") {
    put(words, "device", environment.device.substr(0, environment.device.find_first_of(":,")));
  }
  if (environment.exact_convolutions.value_or(false)) {
    put(words, "conv", "exact");
  }
  if (environment.threads != environment.cores) {
    put(words, "threads", fmt::format("{}", environment.threads));  // bits depend on it
  }
}

Words train_words(const train::Recipe& recipe, const train::Environment& environment) {
  const train::Recipe defaults;
  Words words{"train"};
  for (const train::RecipeOption& option : train::recipe_options()) {
    const std::vector<std::string> items = option.items(recipe);
    const bool always = option.part == train::RecipePart::model;
    if (items.empty() || (items == option.items(defaults) && !always)) {
      continue;
    }
    if (option.is_switch()) {
      words.push_back(fmt::format("--{}{}", items == Words{"true"} ? "" : "no-", option.name));
    } else {
      put(words, option.name, fmt::format("{}", fmt::join(items, ",")));
    }
  }
  if (environment.processes > 1) {
    put(words, "procs", fmt::format("{}", environment.processes));
  }
  put_machine(words, environment);
  return words;
}

/// The name of a norm that is none of Norma's and none of the run's plug-ins': a program registered it. "" for others.
std::string norm_of_a_program(const std::string& norm, const train::Environment& environment) {
  const std::string name = norm.substr(0, norm.find_first_of(":/["));
  const auto has_name = [&](const auto& known) { return known.first == name; };
  const auto has_norm = [&](const nn::PluginRecord& plugin) { return std::ranges::count(plugin.norms, name) > 0; };
  const bool known =
      std::ranges::any_of(nn::built_in_norms(), has_name) || std::ranges::any_of(environment.plugins, has_norm);
  return known ? "" : name;
}

/// One command after the other, for a shell or for Python.
std::string lines_of(const std::vector<Words>& commands, const std::string& registered) {
  std::string text;
  for (const Words& words : commands) {
    if (registered.empty()) {
      text += text.empty() ? "norma" : " && norma";
      for (const std::string& word : words) {
        text += " " + shell_word(word);
      }
    } else {  // JSON's strings are Python's
      const std::string list = data::json_text(nlohmann::json(words));
      text += fmt::format("{}norma.run({})", text.empty() ? "" : "; ", list.substr(1, list.size() - 2));
    }
  }
  return registered.empty() ? text : fmt::format("{}  # in the Python program that registers '{}'", text, registered);
}

}  // namespace

const Tuning* tuning_of(const Comparison& comparison, const Settings& settings) {
  const auto found = std::ranges::find_if(comparison.tunings,
                                          [&](const Tuning& one) { return same_but_seed(one.settings, settings); });
  return found == comparison.tunings.end() ? nullptr : &*found;
}

double lr_of(const Comparison& comparison, const Settings& settings) {
  const Tuning* tuning = tuning_of(comparison, settings);
  const Trial* best = tuning == nullptr ? nullptr : best_trial(*tuning);
  return best == nullptr ? settings.lr : best->lr;
}

train::Recipe recipe_of(const Comparison& comparison, const Settings& settings) {
  train::Recipe recipe = recipe_of(comparison.recipe, settings);
  recipe.lr = lr_of(comparison, settings);
  return recipe;
}

std::vector<Axis> varying_axes(const std::vector<const Comparison*>& comparisons) {
  return filtered(further_axes(), [&](const Axis& axis) {
    const std::string first = axis.value(comparisons.front()->cells.front());
    return std::ranges::any_of(comparisons, [&](const Comparison* comparison) {
      return !std::ranges::all_of(comparison->cells, [&](const Cell& cell) { return axis.value(cell) == first; });
    });
  });
}

std::vector<Axis> varying_axes(const Comparison& comparison) {
  return varying_axes(std::vector{&comparison});
}

std::string values_of(const Comparison& comparison, std::string_view axis) {
  const auto found = std::ranges::find_if(further_axes(), [&](const Axis& other) { return other.name == axis; });
  check(found != further_axes().end(), "values_of", "axis: expected the name of one, got '{}'", axis);
  std::vector<std::string> values;
  for (const Cell& cell : comparison.cells) {
    add_once(values, found->value(cell));
  }
  return fmt::format("{}", fmt::join(values, ", "));
}

std::string label_of(const Comparison& comparison, const Cell& cell) {
  std::string label = fmt::format("{} {}", cell.model, train::norm_label(cell.norm, comparison.recipe));
  for (const Axis& axis : varying_axes(comparison)) {
    label += fmt::format(", {} {}", axis.name, axis.value(cell));
  }
  const bool several_seeds =
      std::ranges::any_of(comparison.cells, [&](const Cell& other) { return other.seed != cell.seed; });
  return several_seeds ? fmt::format("{}, seed {}", label, cell.seed) : label;
}

std::string group_label(const Comparison& comparison, const Settings& settings) {
  std::vector<Axis> axes = varying_axes(comparison);
  std::erase_if(axes, [&](const Axis& axis) {  // a timing_group() has no value there
    return axis.value(settings).empty() || (axis.name == "lr" && settings.lr == 0);
  });
  return group_label(settings, axes);
}

std::string group_label(const Settings& settings, const std::vector<Axis>& axes) {
  const auto value = [&](const Axis& axis) { return fmt::format("{} {}", axis.name, axis.value(settings)); };
  return axes.empty() ? settings.model
                      : fmt::format("{} with {}", settings.model, fmt::join(mapped(axes, value), ", "));
}

Settings comparison_group(Settings settings) {
  settings.norm.clear();
  settings.seed = 0;
  return settings;
}

std::vector<std::string> norms_of(const Comparison& comparison, const Settings& group) {
  std::vector<std::string> norms;
  for (const Cell& cell : comparison.cells) {
    if (timing_group(cell) == group) {
      add_once(norms, cell.norm);
    }
  }
  return norms;
}

std::string reference_of(const std::vector<std::string>& norms) {
  if (is_in(norms, "batch")) {
    return "batch";
  }
  // The text is compared, since norms of a plug-in that is not loaded are unknown.
  const auto found = std::ranges::find(norms, "batch", [](const auto& norm) { return norm.substr(0, norm.find('[')); });
  return found == norms.end() ? "" : *found;
}

std::string_view to_string(CellState state) {
  constexpr std::array<std::string_view, 5> kNames = {"pending", "finished", "failed", "interrupted", "elsewhere"};
  return kNames.at(static_cast<size_t>(state));
}

std::string problem_of(const Cell& cell) {
  constexpr std::array kProblems = {"not started", "", "failed: ", "interrupted", "in another part"};
  const std::string problem = kProblems.at(static_cast<size_t>(cell.state));
  return cell.state == CellState::failed ? problem + cell.reason : problem;
}

std::vector<Row> summarize(const Comparison& comparison) {
  std::vector<std::vector<const Cell*>> groups;  // of cells that differ in the seed alone
  for (const Cell& cell : comparison.cells) {
    const auto found = std::ranges::find_if(groups, [&](const auto& one) { return same_but_seed(*one.front(), cell); });
    (found == groups.end() ? groups.emplace_back() : *found).push_back(&cell);
  }
  std::vector<Row> rows = mapped(groups, row_of);
  decide_rows(comparison, rows);
  return rows;
}

std::vector<GroupRows> by_group(const std::vector<Row>& rows) {
  std::vector<GroupRows> groups;
  for (const Row& row : rows) {
    const auto found = std::ranges::find(groups, comparison_group(row),
                                         [](const GroupRows& group) { return comparison_group(group.front()); });
    (found != groups.end() ? *found : groups.emplace_back()).push_back(row);
  }
  return groups;
}

int64_t finished_rows(const GroupRows& rows) {
  return std::ranges::count_if(rows, [](const Row& row) { return row.finished > 0; });
}

std::string format_spread(const Spread& spread, int digits, double factor) {
  return spread.deviation
             ? fmt::format("{:.{}f} ± {:.{}f}", factor * spread.mean, digits, factor * *spread.deviation, digits)
             : fmt::format("{:.{}f}", factor * spread.mean, digits);
}

std::string format_bytes(int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  return value >= 1e9 ? fmt::format("{:.2f} GB", value / 1e9) : fmt::format("{:.0f} MB", value / 1e6);
}

std::string format_tax(const std::optional<Decision>& tax) {
  if (!tax) {
    return "–";
  }
  return !tax->known() ? not_known(*tax, "round") : (tax->found() ? "" : "none found: ") + format_share(*tax);
}

std::string format_share(const Decision& tax) {
  return fmt::format("{} % ({} to {})", format_percent(tax.difference), format_percent(tax.low),
                     format_percent(tax.high));
}

std::string format_difference(const std::optional<Decision>& difference) {
  if (!difference) {
    return "–";
  }
  if (!difference->known()) {
    return not_known(*difference, "seed");
  }
  const std::string text = fmt::format("{:+.2f} ({:.2f} to {:.2f}), {}", difference->difference, difference->low,
                                       difference->high, format_chance(difference->chance));
  return difference->found() ? text
         : difference->equal ? fmt::format("none found, equal within {}: {}", kEqualPoints, text)
                             : "undecided: " + text;
}

Table results_table(const std::vector<NamedRow>& rows, const std::vector<Axis>& axes) {
  const bool tested =
      std::ranges::any_of(rows, [](const NamedRow& named) { return named.row->accuracy_difference.has_value(); });
  const bool fitted = std::ranges::any_of(rows, [](const NamedRow& named) { return named.row->fit_loss.has_value(); });
  Table table{.heads = {"model"}, .words = axes.size() + 2};
  for (const Axis& axis : axes) {
    table.heads.emplace_back(axis.name);
  }
  table.heads.insert(table.heads.end(), {"norm", "accuracy %"});
  if (tested) {
    table.heads.emplace_back("to reference");
  }
  if (fitted) {
    table.heads.emplace_back("train loss");
  }
  table.heads.insert(table.heads.end(), {"test loss", "img/s", "tax", "memory", "parameters"});
  for (const auto& [name, row] : rows) {
    Table::Row& line = table.add(row->model);
    for (const Axis& axis : axes) {
      line.add(axis.value(*row));
    }
    line.add(name);
    line.remark = row->problem;
    if (row->seeds > 1 && !row->problem.empty()) {
      line.remark = fmt::format("{} of {} seeds; {}", row->finished, row->seeds, row->problem);
    }
    if (row->finished > 0) {
      line.add(format_spread(row->accuracy, 2, 100));
      if (tested) {
        line.add(format_difference(row->accuracy_difference));
      }
      if (fitted) {
        line.add(row->fit_loss ? format_spread(*row->fit_loss, 4) : "–");
      }
      line.add(format_spread(row->loss, 4), format_spread(row->images_per_second, 1), format_tax(row->tax),
               format_bytes(row->peak_bytes), format_count(row->parameters));
    }
  }
  return table;
}

Table cell_table(const Comparison& comparison) {
  Table table{.heads = {"model", "norm", "seed", "batch_size", "lr", "precision", "memory_format", "dataset"}};
  std::vector<std::string> options;  // the axes of options that the comparison has
  for (const OptionAxis& axis : option_axes()) {
    if (!comparison.cells.empty() && comparison.cells.front().options.contains(axis.option)) {
      options.emplace_back(axis.option);
      std::string head = axis.option;
      std::ranges::replace(head, '-', '_');
      table.heads.push_back(std::move(head));
    }
  }
  for (const char* head :
       {"state", "test_accuracy", "test_loss", "train_accuracy", "train_loss", "images_per_second", "tax", "tax_low",
        "tax_high", "peak_tensor_bytes", "peak_process_bytes", "parameters", "steps", "seconds", "reason"}) {
    table.heads.emplace_back(head);
  }
  const std::vector<Row> rows = summarize(comparison);
  for (const Cell& cell : comparison.cells) {
    Table::Row& line =
        table.add(cell.model, train::norm_label(cell.norm, comparison.recipe), cell.seed, cell.batch_size,
                  lr_of(comparison, cell), cell.precision, to_string(cell.format), cell.dataset);
    for (const std::string& option : options) {
      line.add(cell.option(option));
    }
    line.add(to_string(cell.state));
    if (cell.state == CellState::finished) {
      // The tax belongs to the norm, whatever the seed, and so do images per second of the same steps.
      const auto row = std::ranges::find_if(rows, [&](const Row& other) { return same_but_seed(other, cell); });
      const auto share = [&](double Decision::*value) {
        return row->tax && row->tax->known() ? fmt::format("{:.6f}", *row->tax.*value) : "";
      };
      const auto of_fit = [&](double Fit::*value) { return cell.fit ? fmt::format("{}", *cell.fit.*value) : ""; };
      const double rate = row->rate_in_turns ? row->images_per_second.mean : cell.images_per_second;
      line.add(cell.accuracy, cell.loss, of_fit(&Fit::accuracy), of_fit(&Fit::loss), fmt::format("{:.3f}", rate),
               share(&Decision::difference), share(&Decision::low), share(&Decision::high), cell.peak_bytes,
               cell.peak_resident, cell.parameters, cell.losses.size(), fmt::format("{:.3f}", cell.seconds));
    }
    line.cells.resize(table.heads.size() - 1);
    line.add(cell.reason);
  }
  return table;
}

std::string to_csv(const Comparison& comparison) {
  return to_csv(cell_table(comparison));
}

void write_report(const Comparison& comparison, const std::filesystem::path& folder, const train::FolderLock* lock) {
  const auto write = [&](const char* name, const std::string& text) {
    lock != nullptr ? lock->write_text(name, text) : train::write_text_file("compare", folder / name, text);
  };
  write("results.json", to_json(comparison));
  write("results.csv", to_csv(comparison));
  write("report.html", to_html(comparison));
  write("report.md", to_markdown(comparison));
}

bool same_but_seed(const Settings& a, const Settings& b) {
  const auto all_but_seed = [](const Settings& s) {
    return std::tie(s.model, s.norm, s.batch_size, s.lr, s.precision, s.format, s.dataset, s.options);
  };
  return all_but_seed(a) == all_but_seed(b);
}

bool is_a_guess(const Fit& fit) {
  const std::optional<double> margin = guessing_margin(fit.classes, fit.images);
  if (!margin || fit.loss < std::log(static_cast<double>(fit.classes)) - *margin) {
    return false;
  }
  const auto right = static_cast<int64_t>(std::llround(fit.accuracy * static_cast<double>(fit.images)));
  return std::isnan(fit.loss) ||
         !(heads_interval(fit.images, right, 0.001).first > 1 / static_cast<double>(fit.classes));
}

const Trial* best_trial(const Tuning& tuning) {
  const Trial* best = nullptr;
  for (const Trial& trial : tuning.trials) {
    if (trial.loss && (best == nullptr || *trial.loss < *best->loss)) {
      best = &trial;
    }
  }
  return best;
}

bool best_is_at_edge(const Tuning& tuning) {
  const Trial* best = best_trial(tuning);
  return best != nullptr && tuning.trials.size() > 1 &&
         (best == &tuning.trials.front() || best == &tuning.trials.back());
}

train::Recipe source_recipe(const Comparison& comparison, const std::string& model) {
  using Part = train::RecipePart;
  train::Recipe recipe;
  for (const train::RecipeOption& option : train::recipe_options()) {
    if (option.part == Part::network || option.part == Part::data || option.part == Part::shape ||
        option.part == Part::precision) {
      option.give(comparison.recipe, recipe);
    }
  }
  Settings settings = settings_of(recipe);
  settings.model = model;
  settings.norm = "batch";
  recipe = recipe_of(recipe, settings);  // without what other families of networks have
  recipe.norm_policy.clear();
  recipe.norm_policy_file.clear();
  recipe.classes = comparison.source_classes;
  recipe.epochs = kSourceRuns * comparison.recipe.epochs;
  recipe.images = kSourceRuns * comparison.recipe.images;
  return recipe;
}

std::string repeat_command(const Comparison& comparison, const Cell& cell) {
  const train::Environment& environment = comparison.environment;
  const train::Recipe recipe = recipe_of(comparison, cell);
  std::vector<Words> commands{train_words(recipe, environment)};
  if (cell.option(kWeights) == kRecalibrated) {
    put(commands.back(), "output", "run");
    commands.push_back(
        {"eval", "--checkpoint", "run", "--use-ema", "--recalibrate", std::to_string(kRecalibrationBatches)});
    put_machine(commands.back(), environment);
  }
  if (!comparison.source_classes.empty() && !recipe.initial_checkpoint.empty()) {
    commands.insert(commands.begin(), train_words(source_recipe(comparison, cell.model), environment));
    put(commands.front(), "output", std::filesystem::path(recipe.initial_checkpoint).parent_path().string());
  }
  const std::string registered = norm_of_a_program(recipe.norm, environment);
  return lines_of(commands, registered.empty() ? norm_of_a_program(recipe.qk_norm, environment) : registered);
}

}  // namespace norma::lab
