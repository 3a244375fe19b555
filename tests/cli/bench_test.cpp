#include "cli/program.h"
#include "json.h"

#include <algorithm>
#include <string>

using namespace norma;
using test::complaint;
using test::Outcome;
using test::read_file;
using test::run_norma;
using test::TemporaryFolder;

namespace {

const std::string kModel = "--model resnet18 --img-size 32 -b 2 --num-classes 10 ";
const std::string kSmall = kModel + "--num-warm-iter 1 --num-bench-iter 2 ";

/// What stands behind "--result".
nlohmann::json result_of(const Outcome& outcome) {
  const std::string mark = "\n--result\n";
  const size_t at = outcome.out.find(mark);
  REQUIRE_MESSAGE(at != std::string::npos, outcome.out << outcome.err);
  return test::parse_json(outcome.out.substr(at + mark.size()));
}

}  // namespace

TEST_CASE("norma bench: the log and the result on the terminal") {
  const TemporaryFolder folder;
  const Outcome outcome = run_norma(
      folder.path(), "bench " + kSmall + "--bench train --norm group:8 --opt sgd --channels-last --threads 1");
  CHECK_MESSAGE(outcome.code == 0, outcome.err);
  CHECK(outcome.out.starts_with("Benchmarking in float32 precision. NHWC layout. 1 thread\n"));
  CHECK(outcome.out.find("\nTrain [2/2]. ") != std::string::npos);
  const auto json = result_of(outcome);
  CHECK(json["model"] == "resnet18");
  CHECK(json["norm"] == "group:8");
  CHECK(json["opt"] == "sgd");
  CHECK(json["threads"] == 1);
  CHECK(json["train_batch_size"] == 2);
  CHECK(json["train_samples_per_sec"].get<double>() > 0);
  CHECK(!json.contains("infer_step_time"));
  CHECK(folder.names().empty());
}

TEST_CASE("norma bench: several norms, a file of rows, --detail") {
  const TemporaryFolder folder;
  const Outcome outcome =
      run_norma(folder.path(),
                "bench " + kSmall + "--bench inference --norm batch,layer2d --detail --quiet --results-file r.csv");
  CHECK_MESSAGE(outcome.code == 0, outcome.err);
  CHECK(outcome.out.find("Benchmarking") == std::string::npos);
  CHECK(outcome.out.find("resnet18 infer with norm layer2d in NCHW, batch size 2:\n") != std::string::npos);
  CHECK(outcome.out.find("= convolutions and products alone") != std::string::npos);
  CHECK(outcome.out.find("tax %") != std::string::npos);
  const auto json = result_of(outcome);
  REQUIRE(json.size() == 2);
  CHECK(json[0]["infer_samples_per_sec"].get<double>() >= json[1]["infer_samples_per_sec"].get<double>());
  CHECK(json[0]["infer_ops"].size() > 3);
  const std::string csv = read_file(folder / "r.csv");
  CHECK(csv.starts_with("model,infer_samples_per_sec,infer_step_time,infer_batch_size,infer_img_size,infer_gmacs,"));
  CHECK(csv.find("infer_ops") == std::string::npos);
  CHECK(std::count(csv.begin(), csv.end(), '\n') == 3);
}

TEST_CASE("norma bench: a norm policy stands behind the norm, in text and JSON") {
  const TemporaryFolder folder;
  test::write_file(folder / "p.toml", "\"layer4.*\" = \"group:8\"\n");
  const Outcome outcome = run_norma(
      folder.path(), "bench " + kModel + "--bench infer --num-warm-iter 0 --num-bench-iter 1 --norm-policy p.toml");
  CHECK_MESSAGE(outcome.code == 0, outcome.err);
  CHECK(outcome.out.find("inference benchmark on resnet18 with norm batch + p.toml for 1 steps") != std::string::npos);
  CHECK(result_of(outcome)["norm"] == "batch + p.toml");
}

TEST_CASE("norma bench: JSON by the name of the file, or as asked for") {
  const TemporaryFolder folder;
  const std::string arguments = "bench " + kModel + "--bench infer --num-warm-iter 0 --num-bench-iter 1 --quiet ";
  CHECK(run_norma(folder.path(), arguments + "--results-file a.json").code == 0);
  CHECK(test::parse_json(read_file(folder / "a.json"))["model"] == "resnet18");
  CHECK(run_norma(folder.path(), arguments + "--results-file b --results-format json").code == 0);
  CHECK(test::parse_json(read_file(folder / "b"))["infer_img_size"] == 32);
}

TEST_CASE("norma bench: a row that fails is said, the others stay") {
  const TemporaryFolder folder;
  const Outcome outcome = run_norma(folder.path(), "bench " + kSmall + "--bench infer --norm batch,group:7 --quiet");
  CHECK(outcome.code == 1);
  CHECK(result_of(outcome)[1].contains("error"));
}

TEST_CASE("norma bench: what is wrong is said before anything runs") {
  CHECK(complaint("bench --model resnet5") == "norma: bench: unknown model 'resnet5'; did you mean 'resnet50'?\n");
  CHECK(complaint("bench --bench tran") == "norma: bench: bench: expected train, infer or both, got tran\n");
  CHECK(complaint("bench --results-format csv") == "norma: bench: results-format: expected --results-file beside it\n");
  CHECK(complaint("bench --results-file x --results-format xml") ==
        "norma: bench: results-format: expected csv or json, got xml\n");
  CHECK(complaint("bench --results-file .") == "norma: bench: results-file: expected a file, got the folder .\n");
  CHECK(complaint("bench --num-bench-iter 0") ==
        "norma: bench: --num-bench-iter: expected a whole number from 1 to 1000000, got 0\n");
  CHECK(complaint("bench --bach-size 3") ==
        "norma: bench: unknown option '--bach-size'; did you mean '--batch-size'?\n");
  CHECK(complaint("bench --opt adm").find("adm") != std::string::npos);
  CHECK(complaint("bench --norm bath") == "norma: norm: unknown norm 'bath'; did you mean 'batch'?\n");
}
