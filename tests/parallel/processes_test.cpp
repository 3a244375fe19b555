#include "cli/program.h"
#include "data/json.h"
#include "error_text.h"
#include "files.h"
#include "parallel/process_group.h"
#include "parallel/rank_process.h"
#include "train/checkpoint.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

// `norma train` in several processes, beside one process with the same batches. The processes share two processors, or
// one. Where MPI is not in the build, the program says so, and there is nothing else to see.

using namespace norma;
using test::Outcome;
using test::run_norma;
using test::TemporaryFolder;

namespace {

bool has_mpi() {
  if (!parallel::has_mpi()) {
    std::printf("skipped: no MPI in this build\n");
  }
  return parallel::has_mpi();
}

const std::string kSmall =
    "train --dataset shapes --img-size 32 --test-images 10 --threads 1 --workers 0 --quiet --precision float64 "
    "--batch-size 6 ";

train::Checkpoint trained(const TemporaryFolder& folder, const std::string& name, const std::string& options) {
  const Outcome outcome = run_norma(folder.path(), kSmall + options + " --output " + name);
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  return train::load_checkpoint(folder.path() / name / "last.safetensors");
}

/// The largest difference of two states, as a share of the largest number of the tensor.
double difference(const nn::NamedTensors& a, const nn::NamedTensors& b) {
  REQUIRE(a.size() == b.size());
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    REQUIRE(a[i].first == b[i].first);
    const std::vector<double> x = a[i].second.to_vector<double>();
    const std::vector<double> y = b[i].second.to_vector<double>();
    double largest = 1e-300;
    for (const double value : y) {
      largest = std::max(largest, std::abs(value));
    }
    for (size_t k = 0; k < x.size(); ++k) {
      const double distance = std::abs(x[k] - y[k]) / largest;
      worst = std::isfinite(distance) ? std::max(worst, distance) : 1;
    }
  }
  return worst;
}

double difference(const train::Checkpoint& a, const train::Checkpoint& b) {
  // The optimizer's squares of gradients have twice their relative error, and the gradients have more than the weights.
  return std::max(
      {difference(a.model, b.model), 1e-2 * difference(a.optimizer, b.optimizer), difference(a.ema, b.ema)});
}

bool has_steps(const std::filesystem::path& folder) {
  const std::filesystem::path rows = folder / "o" / "metrics.csv";
  return std::filesystem::exists(rows) && test::read_file(rows).find("\n2,") != std::string::npos;
}

/// Sends a signal to a rank of an endless run once it makes steps.
Outcome signalled_rank(const TemporaryFolder& folder, int rank, int signal, const std::string& options) {
  const pid_t program = test::start_norma(
      folder.path(), kSmall +
                         "--model convnext_atto --patch-size 4 --images 6000000 --sched constant --log-interval 1 "
                         "--output o " +
                         options);
  pid_t found = 0;
  // Signal 0 to the program itself: only the moment counts.
  const Outcome outcome = test::signal_when(program, folder.path(), 0, [&] {
    if (!has_steps(folder.path())) {
      return false;
    }
    found = test::process_of(folder.path(), rank);
    REQUIRE(found > 0);
    ::kill(found, signal);
    return true;
  });
  REQUIRE_MESSAGE(found > 0, outcome.err);
  ::kill(found, SIGKILL);
  return outcome;
}

}  // namespace

TEST_CASE("processes: a network with everything learns in any number of them what it learns in one" *
          doctest::test_suite("again")) {
  if (!has_mpi()) {
    return;
  }
  const TemporaryFolder folder;
  for (const std::string options :
       {"--model resnet18 --norm batch --sync-bn --images 30 --opt sgd --lr 0.01 --skip-nonfinite "
        "--freeze conv1,bn1",
        "--model convnext_atto --patch-size 4 --channels-last --drop-path 0.2 --images 36 --grad-accum-steps 2 "
        "--mixup 0.4 --cutmix 1 --model-ema --clip-grad 1"}) {
    CAPTURE(options);
    const train::Checkpoint alone = trained(folder, "alone", options);
    CHECK(alone.step >= 3);
    for (const int processes : {2, 4}) {  // 6 images: 3 each, and 2, 2, 1, 1
      CAPTURE(processes);
      CHECK(difference(trained(folder, "together", fmt::format("{} --procs {}", options, processes)), alone) <= 1e-10);
      std::filesystem::remove_all(folder / "together");
    }
    std::filesystem::remove_all(folder / "alone");
  }
}

TEST_CASE("processes: blocks that are computed again change no bits" * doctest::test_suite("again")) {
  if (!has_mpi()) {
    return;
  }
  const TemporaryFolder folder;
  const std::string options =
      "--model resnet18 --norm batch --sync-bn --drop-path 0.2 --images 18 --opt sgd --lr 0.01 --procs 2";
  const train::Checkpoint plain = trained(folder, "plain", options);
  CHECK(plain.step >= 3);
  CHECK(difference(trained(folder, "again", options + " --grad-checkpointing"), plain) == 0);
}

TEST_CASE("processes: the same bits each time, and a run goes on in another number of them" *
          doctest::test_suite("again")) {
  if (!has_mpi()) {
    return;
  }
  const TemporaryFolder folder;
  const std::string options = "--model resnet18 --norm group:8 --images 24 ";
  const train::Checkpoint whole = trained(folder, "a", options + "--procs 3");
  CHECK(difference(trained(folder, "b", options + "--procs 3"), whole) == 0);
  const pid_t program = test::start_norma(folder.path(), kSmall + options + "--log-interval 1 --procs 3 --output o");
  const Outcome cut = test::signal_when(program, folder.path(), SIGINT, [&] { return has_steps(folder.path()); });
  if (cut.code != 0) {  // else it was quicker
    CHECK_MESSAGE(cut.code == 130, cut.err);
    CHECK(cut.err == "\nnorma: interrupted: ending soon, with what is done saved; Ctrl-C again ends at once\n");
    const Outcome resumed = run_norma(folder.path(), "train --resume o --threads 1 --workers 0 --quiet --procs 2");
    CHECK_MESSAGE(resumed.code == 0, resumed.err);
  }
  CHECK(difference(train::load_checkpoint(folder / "o/last.safetensors"), whole) <= 1e-10);
}

TEST_CASE("processes: without --sync-bn running statistics are averaged, and the log says how far they were apart" *
          doctest::test_suite("again")) {
  if (!has_mpi()) {
    return;
  }
  const TemporaryFolder folder;
  const Outcome outcome = run_norma(
      folder.path(),
      "train --model resnet18 --norm batch --dataset shapes --img-size 32 --test-images 10 --threads 1 --workers 0 "
      "--batch-size 6 --images 12 --procs 2 --output o");
  CHECK_MESSAGE(outcome.code == 0, outcome.err);
  CHECK(outcome.out.find("running statistics: averaged over 2 processes; ") != std::string::npos);
}

TEST_CASE("processes: averaged weights are evaluated as the checkpoint has them, without --sync-bn, too" *
          doctest::test_suite("again")) {
  if (!has_mpi()) {
    return;
  }
  const TemporaryFolder folder;
  trained(folder, "o", "--model resnet18 --norm batch --images 18 --model-ema --model-ema-decay 0.5 --procs 2");
  const std::string rows = test::read_file(folder / "o/metrics.csv");
  const std::string last = rows.substr(rows.rfind('\n', rows.size() - 2) + 1);
  const std::string before_accuracy = last.substr(0, last.rfind(','));
  const double in_run = std::stod(before_accuracy.substr(before_accuracy.rfind(',') + 1));
  const Outcome alone =
      run_norma(folder.path(), "eval --checkpoint o --use-ema --threads 1 --workers 0 --quiet --json e.json");
  REQUIRE_MESSAGE(alone.code == 0, alone.err);
  const nlohmann::json result = data::parse_json("test", "e.json", test::read_file(folder / "e.json"));
  CHECK(result["evaluation"]["loss"].get<double>() == doctest::Approx(in_run).epsilon(1e-10));
}

TEST_CASE("processes: sync_batch is batch in one process, and batch with --sync-bn in several" *
          doctest::test_suite("again")) {
  const TemporaryFolder folder;
  const std::string options = "--model resnet18 --images 18 --opt sgd --lr 0.01 --norm ";
  const train::Checkpoint alone = trained(folder, "alone", options + "batch");
  CHECK(difference(trained(folder, "alone-sync", options + "sync_batch"), alone) == 0);
  if (!has_mpi()) {
    return;
  }
  for (const int processes : {2, 3}) {
    const std::string together = fmt::format("--procs {}", processes);
    const train::Checkpoint flag = trained(folder, "flag", options + "batch --sync-bn " + together);
    CHECK(difference(trained(folder, "norm", options + "sync_batch " + together), flag) == 0);
    CHECK(difference(flag, alone) <= 1e-10);
    std::filesystem::remove_all(folder / "flag");
    std::filesystem::remove_all(folder / "norm");
  }
  // Of a network that has both, only the statistics of `batch` drift apart.
  std::ofstream(folder / "p.toml") << "\"layer*\" = \"sync_batch\"\n";
  const Outcome mixed = run_norma(
      folder.path(),
      "train --model resnet18 --norm batch --norm-policy p.toml --dataset shapes --img-size 32 --test-images 10 "
      "--threads 1 --workers 0 --batch-size 6 --images 12 --procs 2 --output o");
  CHECK_MESSAGE(mixed.code == 0, mixed.err);
  CHECK(mixed.out.find("running statistics: averaged over 2 processes; bn1.running_") != std::string::npos);
}

TEST_CASE("processes: the others name one that is killed or stopped, and end" * doctest::test_suite("again")) {
  if (!has_mpi()) {
    return;
  }
  {
    const TemporaryFolder folder;
    const Outcome outcome = signalled_rank(folder, 1, SIGKILL, "--procs 3");
    CHECK(outcome.code != 0);
    CHECK_MESSAGE(outcome.err.find(": rank 1 (process ") != std::string::npos, outcome.err);
    // Open MPI 5 ends the others before they have seen it, and names the one that was killed.
    CHECK_MESSAGE((outcome.err.find(" has ended without a word\n") != std::string::npos ||
                   outcome.err.starts_with("norma: train: rank 1 (process ")),
                  outcome.err);
    CHECK_MESSAGE(outcome.err.ends_with(" was ended by signal 9 (Killed)\n"), outcome.err);
  }
  const TemporaryFolder folder;
  const Outcome outcome = signalled_rank(folder, 1, SIGSTOP, "--procs 2 --timeout 2");
  CHECK(outcome.code == 2);
  CHECK_MESSAGE(outcome.err.find(" has said nothing for 2 s (--timeout): it is stopped\n") != std::string::npos,
                outcome.err);
}

TEST_CASE("processes: of mpirun's own words only the rank that was ended is said, and others' words all") {
  if (!has_mpi()) {
    return;
  }
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "bin");
  const std::string edge = std::string(74, '-') + "\n";
  const std::string words = edge + "A frame of the program's own, exited or not\n" + edge;
  // The last words have no end of line, and a process that stays behind holds stderr open.
  test::write_file(folder / "bin/mpirun", "#!/bin/sh\ncat >&2 <<'END'\n" + words + edge +
                                              "mpirun noticed that process rank 1 with PID 4242 on node n exited on "
                                              "signal 9 (Killed).\n" +
                                              edge +
                                              "END\nprintf 'last words ' >&2\nsleep 20 > /dev/null &\nexit 137\n");
  std::filesystem::permissions(folder / "bin/mpirun", std::filesystem::perms::owner_all);
  const std::string path = fmt::format("PATH={}:$PATH", (folder / "bin").string());
  for (const std::string& before : {path, "env --ignore-signal=CHLD " + path}) {
    CAPTURE(before);
    const auto begin = std::chrono::steady_clock::now();
    const Outcome outcome = run_norma(folder.path(), kSmall + "--model resnet18 --procs 2 --output o", before);
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(15));
    CHECK(outcome.err == words + "last words norma: train: rank 1 (process 4242) was ended by signal 9 (Killed)\n");
  }
}

TEST_CASE("processes: mistakes are said once, with exit code 2" * doctest::test_suite("again")) {
  const std::string options = kSmall + "--model resnet18 --images 12 ";
  if (!has_mpi()) {
    CHECK(test::complaint(options + "--procs 2") ==
          "norma: train: procs: expected a build with MPI for 2 processes, got one without; install openmpi-bin and "
          "libopenmpi-dev, and build again ('./run train --procs' does)\n");
    CHECK(test::error_of([] { parallel::make_mpi_group(); }) ==
          "mpi: expected a build with MPI for several processes; install openmpi-bin and libopenmpi-dev, and build "
          "again");
    return;
  }
  const TemporaryFolder folder;
  const auto said = [&](const std::string& arguments, const std::string& prefix = "") {
    const Outcome outcome = run_norma(folder.path(), arguments + " --output o", prefix);
    CHECK(outcome.code == 2);
    std::filesystem::remove_all(folder / "o");
    return outcome.err;
  };
  CHECK(said(options + "--procs 7") ==
        "norma: train: procs: expected at most 6, the images of a batch (option -b, which counts those of all "
        "processes), got 7\n");
  CHECK(said(options + "--procs 2 --dry-run") == "norma: train: dry-run: expected one process, got 2\n");
  CHECK(said(options + "--procs 2 --telemetry") == "norma: train: telemetry: expected one process, got 2\n");
  CHECK(said(options + "--procs 2 --batch-size-per-process 3") ==
        "norma: train: batch-size-per-process: expected this or --batch-size, the images of all processes, got both\n");
  CHECK(said(options + "--procs 2", "PATH=/nowhere") ==
        "norma: train: procs: expected mpirun, which starts 2 processes, got none in PATH; install openmpi-bin\n");
  for (const char* number : {"0", "-1"}) {
    CHECK(said(options + "--procs " + number) ==
          fmt::format("norma: train: --procs: expected a whole number from 1 to 65536, got {}\n", number));
  }
  const int64_t processors = ::sysconf(_SC_NPROCESSORS_ONLN);
  CHECK(said(options + fmt::format("--procs {}", 16 * processors + 1)) ==
        fmt::format("norma: train: procs: expected at most {}, 16 for each of the {} processors here, got {}\n",
                    16 * processors, processors, 16 * processors + 1));
  CHECK(said(options + "--procs 2 --norm ghost_batch --sync-bn")
            .find("parts: expected batch norm to share statistics between processes, got ghost batch norm\n") !=
        std::string::npos);
  const std::string mpirun = "OMPI_MCA_orte_execute_quiet=1 mpirun --allow-run-as-root --oversubscribe --bind-to none ";
  // A user's own mpirun of Open MPI 5 adds words of its own.
  CHECK(said(options + "--procs 3", mpirun + "-n 2")
            .starts_with("norma: train: procs: expected the 2 processes of OMPI_COMM_WORLD_SIZE, got 3\n"));
  CHECK(said(options + "--procs 3", mpirun + "-n 1")
            .starts_with("norma: train: procs: expected the 1 process of OMPI_COMM_WORLD_SIZE, got 3\n"));
  // Slurm has started this one of four, and MPI does not know the others.
  CHECK(said(options, "SLURM_NTASKS=4 PMIX_RANK=0") ==
        "norma: train: procs: expected the 4 processes of SLURM_NTASKS, got 1 that MPI has started: 'srun --mpi=pmix' "
        "and mpirun tell processes of each other\n");
  CHECK(
      said(options + "--procs 2", "SLURM_STEP_NUM_TASKS=4") ==
      "norma: train: procs: expected one process that starts 2, got 4 of srun; 'srun --mpi=pmix' without --procs tells "
      "them of each other\n");
  // Two command lines that differ, as by a mistake in a script for several machines.
  const std::string program = test::norma_program() + " " + options;
  const Outcome outcome = test::outcome_in(
      folder.path(),
      std::system(
          fmt::format("cd '{}' && {} -n 1 {} --output o : -n 1 {} --lr 0.25 --output o > stdout.txt 2> stderr.txt "
                      "< /dev/null",
                      folder.path().string(), mpirun, program, program)
              .c_str()));
  CHECK(outcome.code == 2);
  CHECK(outcome.err.starts_with("norma: train: rank 1: --lr: expected 0.002, as rank 0 has, got 0.25\n"));
}
