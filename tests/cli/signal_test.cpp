#include "cli/program.h"
#include "json.h"
#include "train/checkpoint.h"

#include <nlohmann/json.hpp>

#include <filesystem>
#include <string>

using namespace norma;
using test::Outcome;
using test::read_file;
using test::run_norma;
using test::TemporaryFolder;

namespace {

const std::string kTiny =
    "train --model convnext_atto --patch-size 4 --dataset shapes --batch-size 4 --test-images 4 --opt sgd "
    "--log-interval 1 --threads 1 --output o ";
const std::string kEndless = kTiny + "--images 4000000 --sched constant ";

}  // namespace

TEST_CASE("norma train: SIGTERM and SIGHUP are heard at once, save, and have exit codes of their own") {
  for (const auto& [name, code] : {std::pair<std::string, int>{"TERM", 143}, {"HUP", 129}}) {
    CAPTURE(name);
    const TemporaryFolder folder;
    // SIGHUP may be ignored where the tests run, as nohup has it.
    // Two signals at once are one, as timeout(1) sends them.
    const Outcome cut = run_norma(folder.path(), kEndless,
                                  fmt::format("env --default-signal=HUP timeout 240 bash -c '\"$0\" \"$@\" & p=$!; "
                                              "until grep -qs ^1, o/metrics.csv || ! kill -0 $p; do sleep 0.05; done; "
                                              "kill -{} $p $p; wait $p'",
                                              name));
    CHECK_MESSAGE(cut.code == code, cut.err);
    CHECK(cut.err == "\nnorma: SIG" + name + " came: ending soon, with what is done saved\n");
    CHECK(cut.out.find("; go on with: " + test::norma_program() + " train --resume o/last.safetensors\n") !=
          std::string::npos);
    CHECK(train::load_checkpoint(folder / "o/last.safetensors").step > 0);
  }
}

TEST_CASE("norma eval: SIGTERM ends it with the figures of a part") {
  const TemporaryFolder folder;
  REQUIRE(run_norma(folder.path(), kTiny + "--images 4 --quiet").code == 0);
  // Images so large that ten thousand take minutes. The signal is sent once the program is ready to hear it.
  const Outcome cut = run_norma(folder.path(),
                                "eval --checkpoint o --img-size 128 --test-images 10000 --threads 1 --quiet "
                                "--json e.json --confusion-matrix c.csv",
                                "timeout 240 bash -c '\"$0\" \"$@\" & p=$!; "
                                "caught() { [ \"$(cat /proc/$p/comm)\" = norma ] && "
                                "(( 0x$(sed -n \"s/^SigCgt:[^0-9a-f]*//p\" /proc/$p/status) & 1 << 14 )); }; "
                                "until caught || ! kill -0 $p; do sleep 0.05; done; kill -TERM $p; wait $p'");
  CHECK_MESSAGE(cut.code == 143, cut.err);
  CHECK(cut.err == "\nnorma: SIGTERM came: ending soon, with the figures of a part\n");
  CHECK_MESSAGE(cut.out.find("; interrupted\nweights: o/last.safetensors, ") != std::string::npos, cut.out);
  const nlohmann::json json = test::parse_json(read_file(folder / "e.json"));
  CHECK(json["evaluation"]["complete"] == false);
  CHECK(json["evaluation"]["images"] < 10000);
  CHECK(json["evaluation"]["images"] > 0);
  CHECK_FALSE(std::filesystem::exists(folder / "c.csv"));
}

TEST_CASE("norma check-norm: SIGTERM ends it with the checks that it had done") {
  const TemporaryFolder folder;
  // The signal comes with the first check under way.
  const Outcome cut = run_norma(folder.path(), "check-norm --norms batch,layer2d,group:4 --threads 1",
                                "timeout 240 bash -c '\"$0\" \"$@\" > o & p=$!; "
                                "until grep -qs ^sizes o || ! kill -0 $p; do sleep 0.01; done; kill -TERM $p; wait $p; "
                                "code=$?; cat o; exit $code'");
  CHECK_MESSAGE(cut.code == 143, cut.err);
  CHECK(cut.err == "\nnorma: SIGTERM came: ending soon, with the figures of a part\n");
  CHECK_MESSAGE(cut.out.find("\nbatch:\n") != std::string::npos, cut.out);
  CHECK(cut.out.find("\ninterrupted\n") != std::string::npos);
  CHECK(cut.out.find("\nlayer2d:\n") == std::string::npos);
}

TEST_CASE("norma train: an output that nobody reads any more ends the run, with what is done saved") {
  const TemporaryFolder folder;
  const Outcome cut =
      run_norma(folder.path(), kEndless, "timeout 60 bash -c '\"$0\" \"$@\" | head -n 3; exit ${PIPESTATUS[0]}'");
  CHECK_MESSAGE(cut.code == 1, cut.out);
  CHECK(cut.err == "norma: cannot write to the standard output: Broken pipe\n");
  CHECK(train::load_checkpoint(folder / "o/last.safetensors").step > 0);
}

TEST_CASE("norma: output that cannot be written is said, and exit code 1") {
  const std::string full = "bash -c '\"$0\" \"$@\" > /dev/full'";
  const std::string text = "norma: cannot write to the standard output: No space left on device\n";
  const TemporaryFolder folder;
  for (const char* arguments : {"info", "--help", "--version", "train --help"}) {
    const Outcome outcome = run_norma(folder.path(), arguments, full);
    CHECK(outcome.code == 1);
    CHECK(outcome.err == text);
  }
  // A training goes on to its end: its checkpoint is elsewhere.
  const Outcome trained = run_norma(folder.path(), kTiny + "--images 8", full);
  CHECK(trained.code == 1);
  CHECK(trained.err == text);
  CHECK(train::load_checkpoint(folder / "o/last.safetensors").step == 2);
  const Outcome evaluated = run_norma(folder.path(), "eval --checkpoint o", full);
  CHECK(evaluated.code == 1);
  CHECK(evaluated.err == text);
  // A standard output that is closed: nothing that is opened later takes its place.
  const Outcome closed = run_norma(folder.path(), "eval --checkpoint o", "bash -c '\"$0\" \"$@\" >&-'");
  CHECK(closed.code == 1);
  CHECK(closed.err == "norma: cannot write to the standard output: Bad file descriptor\n");
}

TEST_CASE("norma: paths that cannot be looked at have a text") {
  const TemporaryFolder folder;
  std::filesystem::create_symlink("loop", folder / "loop");
  const auto error_of = [&](const std::string& arguments) { return run_norma(folder.path(), arguments).err; };
  const std::string loop = "Too many levels of symbolic links\n";
  CHECK(error_of("train --resume loop") == "norma: train: cannot read loop: " + loop);
  CHECK(error_of("eval --checkpoint loop") == "norma: eval: cannot read loop: " + loop);
  CHECK(error_of(kTiny.substr(0, kTiny.find("--output")) + "--output loop") ==
        "norma: train: cannot write loop: " + loop);
  CHECK(error_of("compare --resume loop").find(loop) != std::string::npos);
  CHECK(error_of("audit --quick --output loop").find(loop) != std::string::npos);
  CHECK(error_of("bench --results-file loop/x").find(loop) != std::string::npos);
  const std::string longest(300, 'a');
  CHECK(error_of("train --resume " + longest) == "norma: train: cannot read " + longest + ": File name too long\n");
  std::filesystem::create_directories(folder / "o/results.json");
  CHECK(error_of("compare --resume o").find("o/results.json") != std::string::npos);
  if (::geteuid() == 0) {
    MESSAGE("root may write everywhere: folders without permission are not tried");
    return;
  }
  std::filesystem::create_directory(folder / "closed");
  std::filesystem::permissions(folder / "closed", std::filesystem::perms::none);
  CHECK(error_of("train --resume closed/x") == "norma: train: cannot read closed/x: Permission denied\n");
  CHECK(error_of(kTiny.substr(0, kTiny.find("--output")) + "--output closed") ==
        "norma: train: cannot write closed: Permission denied\n");
  std::filesystem::permissions(folder / "closed", std::filesystem::perms::owner_all);
}
