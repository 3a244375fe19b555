#include "cli/program.h"
#include "json.h"
#include "parallel/process_group.h"
#include "parallel/rank_process.h"

#include <doctest/doctest.h>

#include <cmath>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

// `norma compare --procs N`: what its runs learn, which of them fail, and how it goes on.

using namespace norma;
using test::Outcome;
using test::run_norma;
using test::TemporaryFolder;

namespace {

const std::string kSmall =
    "compare --models convnext_atto --patch-size 4 --dataset shapes --img-size 32 --test-images 12 --threads 1 "
    "--workers 0 --quiet ";

bool has_mpi() {
  if (!parallel::has_mpi()) {
    CHECK(test::complaint(kSmall + "--procs 2") ==
          "norma: compare: procs: expected a build with MPI for 2 processes, got one without; install openmpi-bin and "
          "libopenmpi-dev, and build again ('./run compare --procs' does)\n");
    std::printf("skipped: no MPI in this build\n");
  }
  return parallel::has_mpi();
}

nlohmann::json results_of(const std::filesystem::path& folder) {
  return test::parse_json(test::read_file(folder / "results.json"));
}

nlohmann::json compared(const TemporaryFolder& folder, const std::string& name, const std::string& options,
                        int code = 0) {
  const Outcome outcome = run_norma(folder.path(), kSmall + options + " --output " + name);
  REQUIRE_MESSAGE(outcome.code == code, outcome.err);
  CHECK(outcome.err.empty());
  return results_of(folder / name);
}

/// The losses of a run's steps and of its test, with the accuracy.
std::vector<double> figures(const nlohmann::json& cell) {
  auto all = cell.at("losses").get<std::vector<double>>();
  all.push_back(cell.at("loss").get<double>());
  all.push_back(cell.at("accuracy").get<double>());
  return all;
}

}  // namespace

TEST_CASE("compare in processes: runs and trials of learning rates have the figures of one process" *
          doctest::test_suite("again")) {
  if (!has_mpi()) {
    return;
  }
  const TemporaryFolder folder;
  const std::string options =
      "--norms batch --seeds 0,1 --batch-size 6 --images 12 --precision float64 --sync-bn --tune-lr ";
  const nlohmann::json alone = compared(folder, "alone", options);
  const nlohmann::json together = compared(folder, "together", options + "--procs 2");
  CHECK_FALSE(alone["environment"].contains("processes"));
  CHECK(together["environment"]["processes"] == 2);
  REQUIRE(alone["cells"].size() == 2);
  REQUIRE(together["cells"].size() == 2);
  for (size_t i = 0; i < alone["cells"].size(); ++i) {
    const std::vector<double> expected = figures(alone["cells"][i]);
    const std::vector<double> found = figures(together["cells"][i]);
    REQUIRE(expected.size() == 4);
    REQUIRE(found.size() == expected.size());
    for (size_t k = 0; k < expected.size(); ++k) {
      CHECK(std::abs(found[k] - expected[k]) <= 1e-10);
    }
    CHECK(alone["cells"][i]["right"]["images"] == 12);
    CHECK(together["cells"][i]["right"] == alone["cells"][i]["right"]);
  }
  const nlohmann::json& trials = together["tunings"][0]["trials"];
  REQUIRE(trials.size() == 5);
  for (size_t k = 0; k < trials.size(); ++k) {
    CHECK(std::abs(trials[k]["loss"].get<double>() - alone["tunings"][0]["trials"][k]["loss"].get<double>()) <= 1e-10);
  }
  const std::string page = test::read_file(folder / "together/report.md");
  CHECK(page.find("1 thread in each of 2 processes used") != std::string::npos);
}

TEST_CASE("compare in processes: a run that fails alike in all of them counts as failed, and the next one begins" *
          doctest::test_suite("again")) {
  if (!has_mpi()) {
    return;
  }
  const TemporaryFolder folder;
  const nlohmann::json infinite = compared(
      folder, "a", "--norms layer2d --lrs 1000,0.001 --weight-decay 1000 --batch-size 6 --images 30 --procs 2", 1);
  CHECK(infinite["cells"][0]["state"] == "failed");
  CHECK(infinite["cells"][0]["reason"].get<std::string>().find(
            ": conv2d: forward gave Inf in output 0 (float32 [3, ") != std::string::npos);
  CHECK(infinite["cells"][1]["state"] == "finished");
  // Three images: two for the first process, and one for the second, of which there is no variance.
  const nlohmann::json one_image =
      compared(folder, "b", "--norms batch,layer2d --batch-sizes 3,6 --images 6 --timing-rounds 1 --procs 2", 1);
  CHECK(one_image["cells"][0]["reason"] ==
        "batch_norm: input: expected more than 1 value per channel when training, got sizes [1, 320, 1, 1]");
  CHECK(one_image["timings"][1]["rounds"].size() == 1);  // by the first process alone
  for (size_t i = 1; i < 4; ++i) {
    CHECK(one_image["cells"][i]["state"] == "finished");
  }
}

TEST_CASE("compare in processes: goes on after a kill and after Ctrl-C with the same bits" *
          doctest::test_suite("again")) {
  if (!has_mpi()) {
    return;
  }
  const TemporaryFolder folder;
  const std::string options =
      "--norms layer2d,group --batch-size 6 --images 90 --procs 2 --timing-rounds 0 --checkpoint-interval 0.01s ";
  const nlohmann::json whole = compared(folder, "whole", options);
  const auto started = [&](const std::string& arguments, int run, const auto& then) {
    const pid_t program = test::start_norma(folder.path(), arguments);
    return test::signal_when(program, folder.path(), 0, [&] {
      return std::filesystem::exists(folder / "o" / fmt::format("run-{}.safetensors", run)) && then(program);
    });
  };
  const Outcome killed = started(kSmall + options + "--output o", 1, [&](pid_t) {
    const pid_t rank = test::process_of(folder.path(), 1);
    return rank > 0 && ::kill(rank, SIGKILL) == 0;
  });
  CHECK_MESSAGE(killed.err.find("rank 1 (process ") != std::string::npos, killed.err);
  const std::string resume = "compare --resume o --workers 0 --quiet --checkpoint-interval 0.01s --procs ";
  CHECK(run_norma(folder.path(), resume + "3").err ==
        "norma: resume: procs: the comparison was started in 2 processes, and cannot go on in 3: give --procs 2\n");
  CHECK(run_norma(folder.path(), resume + "1").err ==
        "norma: resume: procs: the comparison was started in 2 processes, and cannot go on in 1: give --procs 2\n");
  const Outcome cut = started(resume + "2", 2, [](pid_t program) { return ::kill(program, SIGINT) == 0; });
  CHECK_MESSAGE(cut.code == 130, cut.err);
  CHECK(cut.err == "\nnorma: interrupted: ending soon, with what is done saved; Ctrl-C again ends at once\n");
  CHECK_MESSAGE(cut.out.find(" compare --resume o --procs 2\n") != std::string::npos, cut.out);
  CHECK(results_of(folder / "o")["cells"][0]["state"] == "finished");
  const Outcome ended = run_norma(folder.path(), resume + "2");
  CHECK_MESSAGE(ended.code == 0, ended.err);
  const nlohmann::json parts = results_of(folder / "o");
  for (size_t i = 0; i < 2; ++i) {
    CHECK(figures(parts["cells"][i]) == figures(whole["cells"][i]));
  }
}

TEST_CASE("compare in processes: mistakes are said once" * doctest::test_suite("again")) {
  if (!has_mpi()) {
    return;
  }
  CHECK(test::complaint(kSmall + "--norms layer2d --batch-sizes 8,2 --procs 3") ==
        "norma: compare: procs: expected at most 2, the images of a batch (option -b, which counts those of all "
        "processes), got 3\n");
  const std::string budget =
      "norma: compare: procs: expected --images or --epochs beside it, since one process alone cannot measure what "
      "fits "
      "into a budget of time\n";
  CHECK(test::complaint(kSmall + "--budget 1m --procs 2") == budget);
  CHECK(test::complaint(kSmall + "--quick --procs 2") == budget);
}
