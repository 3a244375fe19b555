#include "base/error.h"
#include "base/excerpt.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/run_files.h"
#include "core/copy.h"
#include "core/parallel.h"
#include "data/safetensors.h"
#include "nn/norm/convert.h"
#include "nn/plugin.h"
#include "session/evaluation_report.h"
#include "session/interrupt.h"
#include "session/output.h"
#include "session/progress.h"
#include "session/resume.h"
#include "session/run_folder.h"
#include "train/checkpoint.h"
#include "train/evaluate.h"
#include "train/freeze.h"
#include "train/recipe_option.h"
#include "train/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>

namespace norma::cli {

namespace {

struct State {
  RecipeOptions recipe{{}};
  RunOptions running;
  std::string checkpoint;
  std::string confusion_matrix;
  std::string json;  ///< a file, or "-" for the standard output
  Option model;
  int64_t recalibrate = 0;
  bool fold = false;
  train::WeightsOptions weights;
  std::optional<int64_t> num_classes;
  Option convert_norm;
  std::string output;
};

/// Warns of other names, since another dataset may have the same classes. Throws Error for another number of classes.
void check_classes(const std::vector<std::string>& of_training, const data::DatasetInfo& dataset) {
  const std::string difference = train::class_difference(of_training, dataset);
  check(difference.empty() || dataset.class_names.size() == of_training.size(), "eval", "{}", difference);
  if (!difference.empty()) {
    train::warn("eval", "{}", difference);
  }
}

/// Prints text for people: on the standard error if the standard output is for programs.
void tell(const State& state, const std::string& text) {
  train::put(state.json == "-" ? stderr : stdout, plain_text(text) + "\n");
}

void warn_of_skipped(const data::Dataset& dataset) {
  if (const std::string text = train::skipped_text(dataset); !text.empty()) {
    train::warn("eval", "{}", text);
  }
}

/// Makes the network by the checkpoint's weights, with other norms if --convert-norm is given. In full precision.
std::shared_ptr<nn::Module> load_network(const State& state, train::Recipe& recipe, const std::filesystem::path& file,
                                         int64_t classes) {
  if (!state.convert_norm.given()) {
    return train::load_network("eval", recipe, state.num_classes.value_or(classes), file, state.weights,
                               [&](const std::string& line) { tell(state, line); });
  }
  train::Recipe converted = recipe;
  converted.initial_checkpoint = file.string();
  converted.use_ema = state.weights.use_ema;
  converted.weights_prefix = state.weights.prefix;
  // The run of the checkpoint may have begun with weights of a third norm.
  const train::Recipe typed = state.recipe.applied_to(state.recipe.defaults());
  converted.from_norm = typed.from_norm;
  converted.convert_batches = typed.convert_batches;
  converted.reset_head = false;
  converted.strict = false;
  const auto train_set = train::make_dataset(recipe, data::Split::train);
  const train::ConvertedNetwork network = train::convert_network(
      converted, train_set, {.workers = static_cast<int>(state.running.workers), .head_may_be_other = false});
  tell(state, network.text(converted));
  warn_of_skipped(*train_set);
  return network.model;
}

/// The network to evaluate, not yet in its precision. The recipe gets what the file says of it.
std::shared_ptr<nn::Module> make_network(const State& state, train::Recipe& recipe, const std::filesystem::path& file,
                                         const std::shared_ptr<const data::Dataset>& dataset) {
  const int workers = static_cast<int>(state.running.workers);
  // Running statistics and folded weights are computed in float32; the result is converted afterwards.
  auto model = load_network(state, recipe, file, dataset->info().num_classes());
  train::check_finite("eval", file.string(), model->state_dict());
  if (state.recalibrate > 0) {
    const auto train_set = train::make_dataset(recipe, data::Split::train);
    data::Loader training = train::make_train_loader(recipe, train_set, workers, /* first_step= */ 0, model->device());
    train::freeze(*model, recipe);  // what the run held stays as it is
    const int64_t used = train::recalibrate(*model, training, state.recalibrate);
    tell(state, fmt::format("running statistics are the average over {} training batches", used));
    warn_of_skipped(*train_set);
  }
  if (!state.output.empty()) {
    std::map<std::string, std::string> metadata{{"model", recipe.model}};
    if (recipe.norm_policy.empty()) {
      metadata["norm"] = train::norm_of(recipe);
    }
    if (!recipe.qk_norm.empty()) {
      metadata["qk_norm"] = recipe.qk_norm;
    }
    data::save_safetensors(state.output, model->state_dict(), metadata);
    tell(state, fmt::format("weights are written to {}", state.output));
  }
  if (state.fold) {
    data::Loader example = train::make_test_loader(recipe, dataset, 0);
    const int64_t folded = nn::fold_batch_norm(*model, to_device(example.next()->images, model->device()));
    tell(state, fmt::format("{} batch norms are folded into the convolutions before them", folded));
  }
  return model;
}

/// Checks the output files before the work begins: each must be free, or from an earlier evaluation.
void check_outputs(const State& state) {
  const auto check_file = [](const std::string& file, const char* kind, std::string_view head) {
    if (!file.empty()) {
      train::check_replaceable("eval", file, kind,
                               [head](std::string_view beginning) { return beginning.starts_with(head); });
    }
  };
  check_file(state.confusion_matrix, "a confusion matrix of 'norma eval'", train::kConfusionMatrixHead);
  check(state.output.empty() || std::filesystem::path(state.output).extension() == ".safetensors", "eval",
        "--output: expected a name *.safetensors, got '{}'", state.output);
  if (!state.output.empty()) {
    train::check_new("eval", "--output", state.output);
  }
  const std::string json = state.json == "-" ? "" : state.json;
  const auto check_other = [](const char* name, const std::string& file, const char* other_name,
                              const std::string& other) {
    if (!file.empty() && !other.empty()) {
      train::check_other_file("eval", name, file, other_name, other);
    }
  };
  check_other("--json", json, "--confusion-matrix", state.confusion_matrix);
  check_other("--json", json, "--output", state.output);
  check_other("--confusion-matrix", state.confusion_matrix, "--output", state.output);
  check_file(json, "a result of 'norma eval'", train::kEvaluationJsonHead);
}

/// After an interruption it writes only the JSON, which says so; the matrix of answers could not.
void write_outputs(const State& state, const train::Recipe& recipe, const std::filesystem::path& file,
                   const train::Evaluation& result, const train::ConfusionMatrix& answers) {
  if (!state.confusion_matrix.empty() && result.complete) {
    train::write_text_file("eval", state.confusion_matrix, answers.csv());
  }
  if (state.json.empty()) {
    return;
  }
  const std::string text = train::evaluation_json(result, answers,
                                                  {.checkpoint = file.string(),
                                                   .averaged_weights = state.weights.use_ema,
                                                   .recalibrate = state.recalibrate,
                                                   .fold = state.fold,
                                                   .device = to_string(default_device()),
                                                   .threads = num_threads(),
                                                   .recipe = train::to_json(recipe),
                                                   .plugins = nn::loaded_plugins()});
  if (state.json == "-") {
    train::put(stdout, text);
  } else {
    train::write_text_file("eval", state.json, text);
  }
}

/// The classes of which every image was skipped, by the names SPLIT/CLASS/FILE of the skipped ones.
std::vector<std::string> lost_classes(const data::Dataset& dataset, const train::ConfusionMatrix& answers) {
  std::vector<std::string> lost;
  const std::vector<std::string> skipped = dataset.skipped();
  for (size_t label = 0; label < answers.class_names().size(); ++label) {
    const std::string& name = answers.class_names()[label];
    if (answers.images(static_cast<int64_t>(label)) == 0 && std::ranges::any_of(skipped, [&](const std::string& file) {
          return file.substr(file.find('/') + 1).starts_with(name + "/");
        })) {
      lost.push_back(name);
    }
  }
  return lost;
}

/// Evaluates with a line of progress on a terminal.
train::Evaluation evaluate(const State& state, nn::Module& model, data::Loader& batches,
                           const train::Precision& precision, train::ConfusionMatrix& answers) {
  train::Progress progress({.label = "eval",
                            .unit = "batch",
                            .total_steps = batches.num_steps(),
                            .quiet = state.running.quiet || !train::can_redraw(stderr),
                            .out = stderr});
  const auto start = std::chrono::steady_clock::now();
  int64_t done = 0;
  const auto show = [&](const train::EvaluatedBatch& batch) {
    answers.add(batch);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    progress.update(
        {.step = ++done, .images_per_second = static_cast<double>(batch.images) / seconds.count(), .loss = batch.loss});
  };
  return train::evaluate(model, batches, precision, {.on_batch = show});
}

int run(const State& state) {
  state.running.apply("eval");
  check_outputs(state);
  const std::filesystem::path given = state.checkpoint;
  const bool whole_run = train::is_folder("eval", given);
  const std::filesystem::path file = checkpoint_file("eval", given);
  const Trained trained = trained_in(file, "eval", state.recipe, state.model.given());
  train::Recipe recipe = recipe_for(trained, state.recipe);
  check_norms_are_loaded("eval", kept_norms(trained, recipe), trained.plugins, "checkpoint", given);
  if (!state.convert_norm.given()) {
    warn_of_other_norm("eval", trained, recipe);
  }
  train::check_data_dir("eval", trained.recipe, recipe);
  train::check_recipe(recipe, /* with_weights= */ true);
  const auto dataset = train::make_dataset(recipe, data::Split::test);
  check_classes(trained.class_names, dataset->info());
  if (const std::string text = train::empty_classes_text(dataset->info()); !text.empty()) {
    tell(state, text);
  }
  const train::Precision precision = train::precision_of(recipe);
  if (const std::string note = train::precision_note(precision, default_device()); !note.empty()) {
    tell(state, note);
  }
  const auto model = make_network(state, recipe, file, dataset);
  data::Loader batches =
      train::make_test_loader(recipe, dataset, static_cast<int>(state.running.workers), model->device());
  const train::InterruptGuard guard(train::AfterSignal::figures_of_part);
  train::convert_model(*model, precision);
  train::ConfusionMatrix answers(dataset->info().class_names);
  train::Evaluation result = evaluate(state, *model, batches, precision, answers);
  result.skipped_images = static_cast<int64_t>(dataset->skipped().size());
  const std::string top5 = result.top5 ? fmt::format(", top-5 {:.2f} %", 100 * *result.top5) : "";
  tell(state, fmt::format("{} {} on {}: accuracy {:.2f} %{}, loss {:.4f} ({} images, {:.1f} img/s){}",
                          train::model_label(recipe.model, recipe), train::norm_label(train::norm_of(recipe), recipe),
                          recipe.dataset, 100 * result.accuracy, top5, result.loss, result.images,
                          static_cast<double>(result.images) / result.seconds, result.complete ? "" : "; interrupted"));
  if (whole_run) {
    const std::filesystem::path best = given / train::kBestName;
    tell(state, fmt::format("weights: {}, the newest of the run{}", file.string(),
                            train::path_exists("eval", best) ? fmt::format("; the best are {}", best.string()) : ""));
  }
  warn_of_skipped(*dataset);
  write_outputs(state, recipe, file, result, answers);
  if (const std::vector<std::string> lost = lost_classes(*dataset, answers); !lost.empty() && result.complete) {
    train::put(stderr, fmt::format("norma: eval: {} of {} classes have no image that can be decoded: {}\n", lost.size(),
                                   answers.class_names().size(), excerpt_list(lost)));
    return kFailure;
  }
  if (!std::isfinite(result.loss)) {
    train::put(stderr, fmt::format("norma: eval: the loss is {}, though all weights are finite (precision: {})\n",
                                   result.loss, recipe.precision));
    return kFailure;
  }
  return result.complete ? kSuccess : interrupted_code();
}

}  // namespace

Command add_eval(CLI::App& program) {
  CLI::App& app = add_subcommand(program, "eval");
  auto state = std::make_shared<State>();
  add_path(app, "--checkpoint", state->checkpoint, "the file, or the folder of a run for its newest one",
           {.value = "PATH", .required = true});
  add_value(app, "--recalibrate", train::ranges::kStepsOrNone, state->recalibrate,
            "first replace the running statistics of batch norms by their average over N training batches",
            {.value = "N", .otherwise = "0: keep those of the checkpoint"});
  add_switch(app, "--fold", state->fold, "first fold batch norms into the convolutions before them");
  add_weights_options(app, state->weights);
  add_value(app, "--num-classes", train::ranges::kClasses, state->num_classes,
            "classes of a file of weights alone, of which the images have the first",
            {.value = "K", .otherwise = "as many as the images have"});
  add_path(app, "--confusion-matrix", state->confusion_matrix,
           "write a table of answers: a row for each class of the images, a column for each answer",
           {.value = "FILE.csv"});
  add_path(app, "--json", state->json, "write loss, accuracies and settings; -: to the standard output",
           {.value = "FILE.json"});
  add_path(app, "--output", state->output, "write the weights, with other norms or statistics, before --fold",
           {.value = "FILE.safetensors"});
  using Part = train::RecipePart;
  state->recipe.add(app, {Part::conversion});
  state->recipe.add(app, {Part::model, Part::network, Part::data, Part::shape, Part::precision});
  state->running.add(app);
  state->model = option_of(app, "--model");
  state->convert_norm = option_of(app, "--convert-norm");
  return {&app, [state] { return run(*state); }};
}

}  // namespace norma::cli
