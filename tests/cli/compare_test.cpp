#include "cli/program.h"
#include "json.h"
#include "lab/report/report.h"
#include "models/registry.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <optional>
#include <set>
#include <string>

using namespace norma;
using test::interrupt_norma;
using test::Outcome;
using test::read_file;
using test::run_norma;
using test::TemporaryFolder;

namespace {

const std::string kTiny =
    "compare --models convnext_atto --patch-size 4 --dataset shapes --batch-size 4 --test-images 8 ";

nlohmann::json results(const std::filesystem::path& folder) {
  return test::parse_json(read_file(folder / "results.json"));
}

/// The names of the files in `folder`, one a line.
std::string files_in(const std::filesystem::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.insert(entry.path().filename().string());
  }
  return fmt::format("{}", fmt::join(names, "\n"));
}

}  // namespace

TEST_CASE("norma compare: table, CSV, JSON and page") {
  const TemporaryFolder folder;
  const Outcome outcome = run_norma(
      folder.path(),
      kTiny + "--images 8 --norms 'batch[eps=1e-3,momentum=0.2],group/8' --seeds 1,2 --timing-rounds 2 --output o");
  CHECK_MESSAGE(outcome.code == 0, outcome.err);
  CHECK(outcome.out.find("convnext_atto  batch[eps=1e-3,momentum=0.2]") != std::string::npos);
  CHECK(outcome.out.find("report: o/report.html\n") != std::string::npos);
  const std::string csv = read_file(folder / "o/results.csv");
  CHECK(std::count(csv.begin(), csv.end(), '\n') == 5);
  const nlohmann::json json = results(folder / "o");
  REQUIRE(json["cells"].size() == 4);
  CHECK(json["cells"][3]["norm"] == "group/8");
  CHECK(json["cells"][3]["seed"] == 2);
  CHECK(json["cells"][3]["losses"].size() == 2);
  CHECK(json["timings"][0]["rounds"].size() == 2);
  CHECK(json["command"].get<std::string>().find("'batch[eps=1e-3,momentum=0.2],group/8'") != std::string::npos);
  CHECK(read_file(folder / "o/report.html").starts_with("<!DOCTYPE html>"));
}

TEST_CASE("norma compare: further axes with several values") {
  const TemporaryFolder folder;
  const Outcome outcome = run_norma(folder.path(),
                                    "compare --models convnext_atto --patch-size 4 --test-images 8 --data shapes "
                                    "--batch-sizes 2,4 --lrs 1e-3,2e-3 --precisions float32 --formats contiguous "
                                    "--images 4 --norm batch --timing-rounds 0 --output o");
  CHECK_MESSAGE(outcome.code == 0, outcome.err);
  CHECK_MESSAGE(outcome.out.find("[2/4] convnext_atto batch, batch size 2, lr 0.002") != std::string::npos,
                outcome.out);
  CHECK(outcome.out.find("\nmodel          batch size  lr     norm   accuracy") != std::string::npos);
  const nlohmann::json json = results(folder / "o");
  REQUIRE(json["cells"].size() == 4);
  CHECK(json["cells"][1]["batch_size"] == 2);
  CHECK(json["cells"][1]["lr"] == 0.002);
  CHECK(json["cells"][1]["precision"] == "float32");
  CHECK(json["cells"][1]["memory_format"] == "contiguous");
  CHECK(json["cells"][1]["dataset"] == "shapes");
  CHECK(json["cells"][0]["losses"].size() == 2);  // of as many images
  CHECK(json["cells"][2]["losses"].size() == 1);
  CHECK(
      read_file(folder / "o/results.csv").find("\nconvnext_atto,batch,0,4,0.001,float32,contiguous,shapes,finished,") !=
      std::string::npos);
  CHECK(run_norma(folder.path(), "compare --resume o --batch-sizes 2").err ==
        "norma: resume: models, norms, seeds and recipe are those of the beginning: leave these options out\n");
}

TEST_CASE("norma compare: --norm-policy puts other norms in") {
  const TemporaryFolder folder;
  test::write_file(folder / "p.toml", "\"stages.3.*\" = \"none\"\n");
  const Outcome outcome =
      run_norma(folder.path(), kTiny + "--images 8 --norms group --norm-policy p.toml --timing-rounds 0 --output o");
  CHECK_MESSAGE(outcome.code == 0, outcome.err);
  // Each norm of the last stage has a weight and a bias: the downsampling's of 160 channels, two blocks' of 320.
  const int64_t without = models::create_model("convnext_atto", {.num_classes = 10})->parameter_count();
  CHECK(results(folder / "o")["cells"][0]["parameters"] == without - 2 * (160 + 320 + 320));
  CHECK(outcome.out.find("\nconvnext_atto  group + p.toml ") != std::string::npos);
  CHECK(read_file(folder / "o/results.csv")
            .find("\nconvnext_atto,group + p.toml,0,4,0.002,float32,channels_last,shapes,finished,") !=
        std::string::npos);
  CHECK(read_file(folder / "o/report.html").find(">group + p.toml</th>") != std::string::npos);
}

TEST_CASE("norma compare: a norm policy that does not fit the second model is found before the first is trained") {
  const TemporaryFolder folder;
  test::write_file(folder / "p.toml", "\"layer4.*\" = \"none\"\n");
  const Outcome outcome =
      run_norma(folder.path(),
                "compare --models resnet18,convnext_atto --dataset shapes --batch-size 4 --images 8 "
                "--test-images 8 --norms batch --norm-policy p.toml --output o");
  CHECK(outcome.code == 2);
  CHECK_MESSAGE(outcome.err.starts_with("norma: norm policy: p.toml:1: 'layer4.*': expected the name of a norm layer"),
                outcome.err);
  CHECK(outcome.out.empty());
  CHECK(!std::filesystem::exists(folder / "o"));
}

TEST_CASE("norma compare: a cell that cannot run is found before the first one runs") {
  const TemporaryFolder folder;
  const Outcome outcome = run_norma(folder.path(), kTiny + "--images 8 --norms layer2d group:7 --output o");
  CHECK(outcome.code == 2);
  CHECK_MESSAGE(outcome.err.starts_with("norma: compare: convnext_atto with norm group:7: "), outcome.err);
  CHECK(folder.names().empty());
}

TEST_CASE("norma compare: two specs of one norm make no two rows") {
  const std::string norms = "compare --dataset shapes --norms 'layer2d,batch,batch[eps=1e-5]' --models ";
  CHECK(test::complaint(norms + "resnet18") ==
        "norma: compare: norms: expected each once, but 'batch' and 'batch[eps=1e-5]' are the same in resnet18\n");
  const std::string own = "compare --dataset shapes --norms 'batch,batch[momentum=0.10,eps=1e-6]' --models ";
  CHECK(test::complaint(own + "resnet18,convnext_atto") ==
        "norma: compare: norms: expected each once, but 'batch' and 'batch[momentum=0.10,eps=1e-6]' are the same in "
        "convnext_atto\n");
}

TEST_CASE("norma compare: a dataset without its files is found before the first cell runs") {
  const TemporaryFolder folder;
  const Outcome outcome = run_norma(folder.path(),
                                    "compare --models resnet18 --norms batch,layer2d --images 8 --dataset idx "
                                    "--data-dir nowhere --output o");
  CHECK(outcome.code == 2);
  CHECK(outcome.err == "norma: idx: nowhere: no such folder\n");
  CHECK(folder.names().empty());
}

TEST_CASE("norma compare: the time left is that of all runs") {
  const TemporaryFolder folder;
  const Outcome outcome = run_norma(
      folder.path(), kTiny + "--images 8 --norms layer2d,batch --log-interval 1 --timing-rounds 0 --output o");
  CHECK_MESSAGE(outcome.code == 0, outcome.err);
  CHECK_MESSAGE(outcome.out.find(" left in all\n") != std::string::npos, outcome.out);
}

TEST_CASE("norma compare: SIGINT writes the report of what is done, and --resume does the rest") {
  const TemporaryFolder folder;
  const Outcome cut = interrupt_norma(
      folder.path(),
      kTiny + "--norms batch,layer2d --images 4000000 --log-interval 1 --no-telemetry --timing-rounds 2 --output o",
      "step 2/1000000", "NORMA_STARTED_AS=./run");
  CHECK(cut.code == 130);  // as the shell has it for SIGINT
  // As from the script `run`.
  CHECK_MESSAGE(cut.out.find("interrupted; go on with: ./run compare --resume o\n") != std::string::npos, cut.out);
  nlohmann::json json = results(folder / "o");
  CHECK(json["cells"][0]["state"] == "interrupted");
  CHECK(json["cells"][1]["state"] == "pending");
  CHECK(std::filesystem::exists(folder / "o/report.html"));

  json["recipe"]["images"] = 8;  // else it would run for days
  test::write_file(folder / "o/results.json", data::json_text(json));
  CHECK(run_norma(folder.path(), "compare --resume o --device cuda-emulated").err ==
        "norma: resume: device: the comparison was started on cpu, and cannot go on on cuda-emulated:0\n");
  const Outcome rest = run_norma(folder.path(), "compare --resume o");
  CHECK_MESSAGE(rest.code == 0, rest.err);
  const nlohmann::json after = results(folder / "o");
  for (const nlohmann::json& cell : after["cells"]) {
    CHECK(cell["state"] == "finished");
    CHECK_FALSE(cell.contains("telemetry"));  // as at the beginning
  }
}

TEST_CASE("norma compare: --resume computes convolutions as at the beginning") {
  const TemporaryFolder folder;
  const std::string tiny = kTiny + "--norms batch,layer2d --images 8 --timing-rounds 0 ";
  REQUIRE(run_norma(folder.path(), tiny + "--conv exact --output o").code == 0);
  CHECK(results(folder / "o")["environment"]["conv"] == "exact");
  CHECK(read_file(folder / "o/report.html").find("--conv exact") != std::string::npos);
  const Outcome again = run_norma(folder.path(), "compare --resume o");
  CHECK_MESSAGE(again.code == 0, again.err);
  CHECK_MESSAGE(again.out.find("exact convolutions, as at the beginning\n") != std::string::npos, again.out);
  const Outcome other = run_norma(folder.path(), "compare --resume o --conv fast");
  CHECK(other.code == 2);
  CHECK(other.out.empty());
  CHECK(other.err == "norma: resume: conv: the comparison was started with exact, and cannot go on with fast\n");
  CHECK(run_norma(folder.path(), "compare --resume o --conv exact").code == 0);
  REQUIRE(run_norma(folder.path(), tiny + "--output p").code == 0);
  nlohmann::json fast = results(folder / "p");
  CHECK(fast["environment"]["conv"] == "fast");
  CHECK(run_norma(folder.path(), "compare --resume p --conv exact").code == 2);

  // Results of earlier versions do not say it, and go on either way.
  fast["environment"].erase("conv");
  test::write_file(folder / "p/results.json", data::json_text(fast));
  for (const char* conv : {"exact", "fast"}) {
    const Outcome old = run_norma(folder.path(), fmt::format("compare --resume p --conv {}", conv));
    CHECK_MESSAGE(old.code == 0, old.err);
    CHECK_MESSAGE(old.out.find(fmt::format("{} convolutions; the results do not say which they began with\n", conv)) !=
                      std::string::npos,
                  old.out);
  }
  const Outcome same = run_norma(folder.path(), tiny + "--conv exact --output p");  // goes on, too
  CHECK_MESSAGE(same.code == 0, same.err);
}

TEST_CASE("norma compare: --resume refuses another file of weights, also where only a failed run is left") {
  const TemporaryFolder folder;
  const std::string train = "train --model convnext_atto --norm layer2d --patch-size 4 --dataset shapes --images 8 ";
  REQUIRE(run_norma(folder.path(), train + "--batch-size 4 --test-images 8 --output s").code == 0);
  const Outcome first = run_norma(folder.path(), kTiny +
                                                     "--norms layer2d --images 8 --timing-rounds 0 --output o "
                                                     "--initial-checkpoint s/last.safetensors");
  REQUIRE_MESSAGE(first.code == 0, first.err);
  nlohmann::json json = results(folder / "o");
  json["cells"][0]["state"] = "failed";
  test::write_file(folder / "o/results.json", data::json_text(json));
  test::write_file(folder / "s/last.safetensors", "other");
  const Outcome resumed = run_norma(folder.path(), "compare --resume o");
  CHECK(resumed.code == 2);
  CHECK_MESSAGE(
      resumed.err.starts_with("norma: resume: initial-checkpoint: 's/last.safetensors' has changed since the"),
      resumed.err);
}

TEST_CASE("norma compare: --dynamics is drawn in the report, kept for --resume, and refused where it cannot be had" *
          doctest::test_suite("again")) {
  const TemporaryFolder folder;
  const std::string grid = kTiny + "--norms batch,dyt --images 8 --timing-rounds 0 ";
  const Outcome made = run_norma(folder.path(), grid + "--dynamics all --output o");
  CHECK_MESSAGE(made.code == 0, made.err);
  CHECK(made.out.find("sharpness after 0 updates: ") != std::string::npos);
  const nlohmann::json json = results(folder / "o");
  CHECK(json["dynamics"] == "gradients,weights,saturation,sharpness");
  const std::string page = read_file(folder / "o/report.html");
  for (const std::string title : {"gradient norm before the first update", "effective learning rate",
                                  "saturation at the end", "sharpness", "norm of scale-invariant weights"}) {
    CHECK_MESSAGE(page.find("convnext_atto: " + title) != std::string::npos, title);
  }
  CHECK(lab::comparison_from_json(data::json_text(json)).dynamics.sharpness);

  const auto refused = [&](const std::string& options) {
    const Outcome outcome = run_norma(folder.path(), options);
    CHECK(outcome.code == 2);
    CHECK(outcome.out.empty());
    return outcome.err;
  };
  CHECK(refused(grid + "--dynamics weights --no-telemetry --output p") ==
        "norma: compare: dynamics: expected telemetry, which holds them, got --no-telemetry\n");
  CHECK(
      refused(kTiny + "--dynamics sharpness --budget 60s --output p") ==
      "norma: compare: dynamics: expected --images or --epochs beside sharpness, which takes longer than any budget of "
      "time knows\n");
  CHECK(refused(grid + "--dynamics sharp --output p") ==
        "norma: compare: dynamics: expected some of gradients, weights, saturation, sharpness, or all, got 'sharp'\n");
  CHECK(!std::filesystem::exists(folder / "p"));
}

TEST_CASE("norma compare: killed again and again, it ends with the report of one that was not" *
          doctest::test_suite("again")) {
  const TemporaryFolder folder;
  const std::string grid = kTiny + "--images 8 --norms batch,layer2d --seeds 0,1 --timing-rounds 2 --log-interval 1 ";
  REQUIRE(run_norma(folder.path(), grid + "--output whole").code == 0);
  const auto go_on = [&] {
    return std::filesystem::exists(folder / "o/results.json") ? std::string("compare --resume o --log-interval 1")
                                                              : grid + "--output o";
  };
  // First at moments of each kind, then after longer and longer times, so that it comes to an end on any machine.
  int kills = 0;
  for (const char* said : {"the report grows", "[1/4]", "[2/4]", "[timing]", "layer2d, seed 0  after 8 images"}) {
    const Outcome killed = test::signal_when(test::start_norma(folder.path(), go_on()), folder.path(), SIGKILL, [&] {
      return std::filesystem::exists(folder / "stdout.txt") &&
             read_file(folder / "stdout.txt").find(said) != std::string::npos;
    });
    kills += killed.code == 128 + SIGKILL ? 1 : 0;
  }
  std::chrono::milliseconds after(30);
  Outcome outcome;
  while ((outcome = test::kill_norma(folder.path(), go_on(), after)).code == 128 + SIGKILL) {
    after *= 2;
    ++kills;
    REQUIRE(after < std::chrono::minutes(4));
  }
  CHECK_MESSAGE(outcome.code == 0, outcome.err);
  CAPTURE(kills);
  nlohmann::json found = results(folder / "o");
  nlohmann::json whole = results(folder / "whole");
  for (nlohmann::json* json : {&found, &whole}) {
    json->erase("date");
    json->erase("command");
    for (nlohmann::json& cell : (*json)["cells"]) {
      for (const char* measured : {"seconds", "images_per_second", "peak_bytes", "peak_resident"}) {
        CHECK(cell.erase(measured) == 1);
      }
      for (const char* measured : {"throughput", "step_time"}) {
        CHECK(cell["telemetry"].erase(measured) == 1);
      }
      for (const char* curve : {"losses", "tests"}) {
        CHECK(cell["telemetry"][curve].erase("seconds") == 1);
      }
    }
    for (nlohmann::json& timing : (*json)["timings"]) {
      timing["rounds"] = timing["rounds"].size();
    }
  }
  CHECK(data::json_text(found, 1) == data::json_text(whole, 1));
  CHECK(files_in(folder / "o") == files_in(folder / "whole"));  // nothing half written is left
}

TEST_CASE("norma compare: the same command again goes on, in a run that was killed from its checkpoint") {
  const TemporaryFolder folder;
  const std::string plugin = (test::plugin_folder() / "tiny_network.so").string();
  const std::string grid =
      "compare --models tiny_network --norms batch,layer2d --dataset shapes --batch-size 4 "
      "--test-images 8 --images 2000 --timing-rounds 0 --threads 1 --log-interval 1 --plugin " +
      plugin + " ";
  REQUIRE(run_norma(folder.path(), grid + "--output whole").code == 0);
  const auto has_checkpoint = [&] {
    return std::filesystem::exists(folder / "o/run-1.safetensors") ||
           std::filesystem::exists(folder / "o/run-2.safetensors");
  };
  const std::string cut = grid + "--output o --checkpoint-interval 0.02s";
  int gone_on = 0;
  Outcome outcome;
  for (std::chrono::milliseconds after(0);; after += std::chrono::milliseconds(20)) {
    std::optional<std::chrono::steady_clock::time_point> seen;  // the checkpoint
    outcome = test::signal_when(test::start_norma(folder.path(), cut), folder.path(), SIGKILL, [&] {
      if (!seen && has_checkpoint()) {
        seen = std::chrono::steady_clock::now();
      }
      return seen && std::chrono::steady_clock::now() - *seen >= after;
    });
    gone_on += outcome.out.find("  goes on after step ") != std::string::npos ? 1 : 0;
    CHECK(outcome.err.find("begins anew") == std::string::npos);
    if (outcome.code != 128 + SIGKILL) {
      break;
    }
    REQUIRE(after < std::chrono::minutes(1));
  }
  CHECK_MESSAGE(outcome.code == 0, outcome.err);
  CHECK(gone_on > 0);
  CHECK(files_in(folder / "o") == files_in(folder / "whole"));
  const nlohmann::json found = results(folder / "o");
  const nlohmann::json whole = results(folder / "whole");
  for (size_t i = 0; i < 2; ++i) {
    for (const char* name : {"losses", "accuracy", "loss", "state", "parameters"}) {
      CHECK(found["cells"][i][name] == whole["cells"][i][name]);
    }
  }
  const Outcome once_more = run_norma(folder.path(), cut);  // nothing is left to do
  CHECK(once_more.code == 0);
  CHECK(once_more.out.find("[1/2]") == std::string::npos);
  CHECK(results(folder / "o") == found);
  CHECK(run_norma(folder.path(), cut + " --lr 0.25").err ==
        "norma: compare: 'o' holds another comparison (lr 0.002 → 0.25): choose another output folder\n");
  CHECK(run_norma(folder.path(), cut + " --part 1/2").err ==
        "norma: compare: 'o' holds another comparison (number of parts 0 → 2): choose another output folder\n");
}

TEST_CASE("norma compare: parts run on their own, and norma report makes one comparison of them" *
          doctest::test_suite("again")) {
  const TemporaryFolder folder;
  const std::string grid = kTiny + "--images 8 --norms batch,layer2d,group --seeds 0,1 --timing-rounds 1 --threads 1 ";
  REQUIRE(run_norma(folder.path(), grid + "--output whole").code == 0);
  std::string folders;
  for (const char* number : {"3", "1", "2"}) {
    const Outcome part = run_norma(folder.path(), fmt::format("{}--part {}/3 --output p{}", grid, number, number));
    CHECK_MESSAGE(part.code == 0, part.err);
    CHECK_MESSAGE(part.out.starts_with(fmt::format("part {} of 3: ", number)), part.out);
    CHECK(part.out.find(" of 6 runs on shapes at 32x32") != std::string::npos);
    CHECK(part.out.find(fmt::format("This is part {} of 3; the other runs are in parts", number)) != std::string::npos);
    folders += fmt::format("p{} ", number);
  }
  const Outcome two = run_norma(folder.path(), "report p3 p1 --output two");
  CHECK(two.code == 0);
  CHECK(two.err == "norma: report: warning: Runs are missing: those of part 2 of 3.\n");
  const Outcome all = run_norma(folder.path(), "report " + folders + "--output all");
  CHECK_MESSAGE(all.code == 0, all.err);
  CHECK(all.err.empty());
  CHECK(run_norma(folder.path(), "report two p2 --output again").code == 0);
  CHECK(results(folder / "again") == results(folder / "all"));
  nlohmann::json found = results(folder / "all");
  nlohmann::json whole = results(folder / "whole");
  CHECK(found["parts"].size() == 3);
  found.erase("parts");
  found.erase("part_count");
  for (nlohmann::json* json : {&found, &whole}) {
    json->erase("date");
    json->erase("command");
    for (nlohmann::json& cell : (*json)["cells"]) {
      for (const char* measured : {"seconds", "images_per_second", "peak_bytes", "peak_resident", "telemetry"}) {
        CHECK(cell.erase(measured) == 1);
      }
    }
    for (nlohmann::json& timing : (*json)["timings"]) {
      timing["rounds"] = timing["rounds"].size();
    }
  }
  CHECK(data::json_text(found, 1) == data::json_text(whole, 1));

  const auto error = [&](const std::string& words) { return run_norma(folder.path(), words).err; };
  CHECK(error("report p1 p2 p1 --output x").ends_with("both hold part 1 of 3: leave one of them out\n"));
  CHECK(error("report p1 whole --output x").find("whole' is no part of a comparison: ") != std::string::npos);
  CHECK(run_norma(folder.path(), grid + "--lr 0.1 --part 2/3 --output other").code == 0);
  CHECK(error("report p1 other --output x").ends_with("are parts of different plans: lr 0.002 → 0.1\n"));
  CHECK(error("compare --resume two") ==
        "norma: resume: 'two' was merged from several parts: go on in the folder of each part\n");
  CHECK(error(grid + "--part 2/3 --output p1") ==
        "norma: compare: 'p1' holds another comparison (part 1 → 2): choose another output folder\n");
  CHECK(!std::filesystem::exists(folder / "x"));
}

TEST_CASE("norma compare: a part that cannot be is a mistake") {
  const std::string grid = "compare --models resnet18 --norms batch,layer2d --dataset shapes --part ";
  const auto expected = [](const std::string& got) {
    return fmt::format("norma: compare: part: expected K/N with K from 1 to N, as 2/4, got '{}'\n", got);
  };
  for (const char* wrong : {"0/4", "5/4", "x"}) {
    CHECK(test::complaint(grid + wrong) == expected(wrong));
  }
  CHECK(test::complaint(grid + "1/3") == "norma: compare: part: expected at most 2 parts for 2 runs, got 3\n");
  CHECK(test::complaint(grid + "1/2 --budget 90s") ==
        "norma: compare: part: expected runs of one length in all parts, by --images or --epochs, got a budget of "
        "time\n");
}

TEST_CASE("norma compare: --budget chooses the length of the runs, which --resume keeps") {
  const TemporaryFolder folder;
  const std::string grid = kTiny + "--norms batch,layer2d --timing-rounds 0 --output o ";
  const Outcome outcome = run_norma(folder.path(), grid + "--budget 0.1s");
  CHECK(outcome.code == 2);
  CHECK_MESSAGE(outcome.err.starts_with("norma: compare: budget: expected at least "), outcome.err);
  CHECK(outcome.err.find(" for 2 runs of 40 images each, the shortest, got 0.1s; ") != std::string::npos);
  CHECK(folder.names().empty());
  const Outcome cut = interrupt_norma(folder.path(), grid + "--budget 10h --log-interval 1", "step 2/");
  CHECK(cut.code == 130);
  CHECK_MESSAGE(cut.out.find("budget of 10.0h: 2 runs of ") != std::string::npos, cut.out);
  const nlohmann::json json = results(folder / "o");
  CHECK(json["budget"] == 36000);
  CHECK(json["recipe"]["images"] > 40);
  const int64_t steps = json["recipe"]["images"].get<int64_t>() / 4;
  // The same command is as good as --resume: it measures nothing anew.
  for (const std::string& command :
       {std::string("compare --resume o --log-interval 1"), grid + "--budget 10h --log-interval 1"}) {
    const Outcome rest = interrupt_norma(folder.path(), command, "goes on after step ");
    CHECK(rest.code == 130);
    CHECK_MESSAGE(rest.out.find(fmt::format(" of {}\n", steps)) != std::string::npos, rest.out);
    CHECK(rest.out.find("budget of") == std::string::npos);
    CHECK(results(folder / "o")["recipe"] == json["recipe"]);
  }
  CHECK(run_norma(folder.path(), grid + "--budget 9h").err ==
        "norma: compare: 'o' holds another comparison (budget 36000s → 32400s): choose another output folder\n");
  CHECK(run_norma(folder.path(), "compare --resume o --budget 10m").err ==
        "norma: resume: models, norms, seeds and recipe are those of the beginning: leave these options out\n");
}

TEST_CASE("norma compare: --quick is small, and what is said goes before it") {
  const TemporaryFolder folder;
  const Outcome outcome = run_norma(folder.path(),
                                    "compare --quick --dataset shapes --patch-size 4 --test-images 8 --batch-size 4 "
                                    "--images 4 --norms layer2d --timing-rounds 0 --output o");
  CHECK_MESSAGE(outcome.code == 0, outcome.err);
  const nlohmann::json json = results(folder / "o");
  REQUIRE(json["cells"].size() == 2);
  CHECK(json["cells"][0]["model"] == "resnet18");
  CHECK(json["cells"][1]["model"] == "convnext_atto");
  CHECK(json["cells"][1]["batch_size"] == 4);
  CHECK(!json.contains("budget"));
}

TEST_CASE("norma compare: what is wrong is said before anything runs") {
  const TemporaryFolder folder;
  CHECK(run_norma(folder.path(), "compare --resume none").err ==
        "norma: resume: cannot open none/results.json: No such file or directory\n");
  CHECK(run_norma(folder.path(), "compare --resume none --output o").err ==
        "norma: compare: --output excludes --resume\n");
  test::write_file(folder / "file", "");
  CHECK(run_norma(folder.path(), kTiny + "--norms batch --output file").err ==
        "norma: compare: cannot write file: Not a directory\n");
  std::filesystem::create_directory(folder / "o");
  test::write_file(folder / "o/results.json", "{}");
  CHECK(run_norma(folder.path(), kTiny + "--norms batch --output o").err ==
        "norma: compare: 'o' holds another comparison (resume: o/results.json: format: missing): choose another output "
        "folder\n");
  CHECK(run_norma(folder.path(), "compare --resume o --norms batch").err ==
        "norma: resume: models, norms, seeds and recipe are those of the beginning: leave these "
        "options out\n");
  const Outcome nothing = run_norma(folder.path(), "compare --resume o");
  CHECK(nothing.code == 2);
  CHECK(nothing.err == "norma: resume: o/results.json: format: missing\n");
}
