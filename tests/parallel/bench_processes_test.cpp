#include "cli/program.h"
#include "json.h"
#include "parallel/process_group.h"

#include <doctest/doctest.h>

#include <cstdio>
#include <string>

// `norma bench --procs`, which starts its processes itself. Where MPI is not in the build, the program says so.

using namespace norma;
using test::complaint;
using test::Outcome;
using test::run_norma;
using test::TemporaryFolder;

namespace {

const std::string kModel = "bench --model resnet18 --img-size 32 --num-classes 10 --threads 1 --num-warm-iter 1 ";
const std::string kSmall = kModel + "--num-bench-iter 3 ";

bool has_mpi() {
  if (!parallel::has_mpi()) {
    CHECK(complaint(kSmall + "--procs 1,2 -b 4") ==
          "norma: bench: procs: expected a build with MPI for 1 processes, got one without; install openmpi-bin and "
          "libopenmpi-dev, and build again ('./run bench --procs' does)\n");
    std::printf("skipped: no MPI in this build\n");
  }
  return parallel::has_mpi();
}

/// What stands behind "--result".
nlohmann::json result_of(const Outcome& outcome) {
  const std::string mark = "--result\n";
  const size_t at = outcome.out.find(mark);
  REQUIRE_MESSAGE(at != std::string::npos, outcome.out << outcome.err);
  return test::parse_json(outcome.out.substr(at + mark.size()));
}

double milliseconds(const nlohmann::json& row, const char* key) {
  return row.at(key).get<double>();
}

}  // namespace

TEST_CASE("bench in processes: a row for each number, with what messages take and what of it is hidden" *
          doctest::test_suite("again")) {
  if (!has_mpi()) {
    return;
  }
  const TemporaryFolder folder;
  const Outcome outcome = run_norma(folder.path(), kSmall + "--procs 1,2,3 -b 7 --results-file r.csv");
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  CHECK(outcome.err.empty());
  CHECK(outcome.out.find("\n3 processes:\nBenchmarking in float32") != std::string::npos);
  CHECK(outcome.out.find("The batch is the same for any number of processes") != std::string::npos);
  const auto rows = result_of(outcome);
  REQUIRE(rows.size() == 3);
  for (const auto& row : rows) {
    CAPTURE(row.dump());
    CHECK(row["train_batch_size"] == 7);
    CHECK(row["threads"] == 1);
    const double rate_of_first = rows[0]["train_samples_per_sec"].get<double>();
    const double share =
        row["train_samples_per_sec"].get<double>() / row["train_processes"].get<double>() / rate_of_first;
    CHECK(row["train_efficiency"].get<double>() == doctest::Approx(100 * share).epsilon(0.01));
    const double messages = milliseconds(row, "train_message_time");
    const double exposed = milliseconds(row, "train_exposed_time");
    if (row["train_processes"] == 1) {
      CHECK(messages == 0);
      continue;
    }
    CHECK(messages > 0);
    CHECK(exposed > 0);
    CHECK(exposed < milliseconds(row, "train_step_time_max"));
    CHECK(row["train_hidden"].get<double>() ==
          doctest::Approx(exposed < messages ? 100 * (1 - exposed / messages) : 0).epsilon(0.01));
  }
  CHECK(rows[2]["train_processes"] == 3);
  const std::string csv = test::read_file(folder / "r.csv");
  CHECK(csv.starts_with("model,train_samples_per_sec,"));
  CHECK(csv.find(",train_processes,") < csv.find(",train_efficiency\n"));
  // Its own results may be replaced. Each process can have the same batch, too.
  const Outcome weak =
      run_norma(folder.path(), kSmall + "--procs 2,1 --batch-size-per-process 2 --quiet --results-file r.csv");
  REQUIRE_MESSAGE(weak.code == 0, weak.err);
  CHECK(weak.out.starts_with("\nprocesses"));
  CHECK(weak.out.find("(weak scaling)") != std::string::npos);
  CHECK(result_of(weak)[0]["train_batch_size"] == 4);
  CHECK(result_of(weak)[0]["train_efficiency"] == 100);
  CHECK(result_of(weak)[1]["train_batch_size"] == 2);
}

TEST_CASE("bench in processes: those of somebody's own mpirun print one row" * doctest::test_suite("again")) {
  if (!has_mpi()) {
    return;
  }
  const TemporaryFolder folder;
  const std::string mpirun =
      "OMPI_MCA_orte_execute_quiet=1 mpirun --allow-run-as-root --oversubscribe --bind-to none -n 2";
  const Outcome outcome = run_norma(folder.path(), kSmall + "-b 4 --quiet", mpirun);
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  CHECK(result_of(outcome)["train_processes"] == 2);
  CHECK(run_norma(folder.path(), kSmall + "-b 4 --procs 1,2", mpirun)
            .err.find("norma: bench: procs: expected the 2 processes that were started, got 1,2\n") !=
        std::string::npos);
}

TEST_CASE("bench in processes: an interrupt ends all of them" * doctest::test_suite("again")) {
  if (!has_mpi()) {
    return;
  }
  const TemporaryFolder folder;
  const Outcome outcome = test::interrupt_norma(folder.path(), kModel + "-b 4 --procs 2,1 --num-bench-iter 100000",
                                                "Running train benchmark");
  CHECK_MESSAGE(outcome.code == 130, outcome.err);
  CHECK(outcome.out.find("interrupted\n") != std::string::npos);
  CHECK(outcome.out.find("--result") == std::string::npos);
}

TEST_CASE("bench in processes: mistakes are said before anything runs" * doctest::test_suite("again")) {
  if (!has_mpi()) {
    return;
  }
  const auto said = [&](const std::string& arguments) { return complaint("bench " + arguments); };
  CHECK(said("--procs 1,2,1") == "norma: bench: procs: expected each number once, got 1 twice\n");
  CHECK(said("--procs 1,3 -b 2") ==
        "norma: bench: procs: expected at most 2, the images of a batch (option -b, which counts those of all "
        "processes), got 3\n");
  CHECK(said("--procs 2 --bench both") ==
        "norma: bench: procs: expected --bench train beside it, since processes that infer tell each other nothing\n");
  CHECK(said("--procs 2 --retry") ==
        "norma: bench: procs: expected none of --retry, --detail and --alternate beside it\n");
  CHECK(said("--procs 2 --model 'resnet*'") ==
        "norma: bench: procs: expected one model with one norm in one format beside it\n");
  CHECK(said("--batch-size-per-process 2") == "norma: bench: batch-size-per-process: expected --procs beside it\n");
}
