#include "cli/program.h"
#include "json.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

using namespace norma;
using test::Outcome;
using test::read_file;
using test::run_norma;
using test::TemporaryFolder;

namespace {

const std::string kTrain =
    "train --model convnext_atto --patch-size 4 --dataset shapes --batch-size 4 --images 8 --test-images 20 --threads "
    "1 "
    "--quiet --output o";

std::vector<std::vector<std::string>> rows_of(const std::string& csv) {
  std::vector<std::vector<std::string>> rows;
  std::istringstream lines(csv);
  for (std::string line; std::getline(lines, line);) {
    rows.emplace_back();
    std::istringstream fields(line);
    for (std::string field; std::getline(fields, field, ',');) {
      rows.back().push_back(field);
    }
  }
  return rows;
}

}  // namespace

TEST_CASE("norma eval: the confusion matrix and the JSON say the same as the line") {
  const TemporaryFolder folder;
  REQUIRE(run_norma(folder.path(), kTrain).code == 0);
  const std::string eval = "eval --checkpoint o --threads 1 --confusion-matrix c.csv --json ";
  const Outcome outcome = run_norma(folder.path(), eval + "e.json");
  CHECK_MESSAGE(outcome.code == 0, outcome.err);
  CHECK(outcome.err.empty());  // progress is for terminals
  const nlohmann::json json = test::parse_json(read_file(folder / "e.json"));
  const nlohmann::json& figures = json["evaluation"];
  CHECK(figures["images"] == 20);
  CHECK(figures["skipped_images"] == 0);
  CHECK(figures["complete"] == true);
  CHECK(figures["images_per_second"].get<double>() > 0);
  const double top1 = figures["top1"].get<double>();
  const double top5 = figures["top5"].get<double>();
  CHECK(top1 <= top5);
  CHECK(top5 <= 100);
  CHECK_MESSAGE(outcome.out.starts_with(
                    fmt::format("convnext_atto layer2d on shapes: accuracy {:.2f} %, top-5 {:.2f} %, loss {:.4f} (20 "
                                "images, ",
                                top1, top5, figures["loss"].get<double>())),
                outcome.out);
  CHECK(json["settings"]["checkpoint"] == "o/last.safetensors");
  CHECK(json["settings"]["threads"] == 1);
  CHECK(json["settings"]["recipe"]["model"] == "convnext_atto");

  const auto rows = rows_of(read_file(folder / "c.csv"));
  const nlohmann::json& classes = json["classes"];
  REQUIRE(rows.size() == classes.size() + 1);
  CHECK(rows[0][0] == "label \\ answer");
  int64_t images = 0;
  int64_t correct = 0;
  for (size_t i = 1; i < rows.size(); ++i) {
    REQUIRE(rows[i].size() == rows.size());
    CHECK(rows[i][0] == rows[0][i]);
    CHECK(classes[i - 1]["name"] == rows[i][0]);
    CHECK(classes[i - 1]["correct"] == std::stoll(rows[i][i]));
    int64_t of_class = 0;
    for (size_t k = 1; k < rows.size(); ++k) {
      of_class += std::stoll(rows[i][k]);
    }
    CHECK(classes[i - 1]["images"] == of_class);
    CHECK(classes[i - 1]["top1"].is_null() == (of_class == 0));
    images += of_class;
    correct += std::stoll(rows[i][i]);
  }
  CHECK(images == 20);
  CHECK(top1 == doctest::Approx(5.0 * static_cast<double>(correct)));

  // To the standard output alone goes JSON alone; former results are written over.
  const Outcome piped = run_norma(folder.path(), eval + "-");
  CHECK_MESSAGE(piped.code == 0, piped.err);
  nlohmann::json same = test::parse_json(piped.out);
  CHECK(same["evaluation"]["top1"] == top1);
  CHECK(same["classes"] == classes);
  CHECK(piped.err.starts_with("convnext_atto layer2d on shapes: accuracy "));

  test::write_file(folder / "mine.csv", "a,b\n");
  const Outcome refused = run_norma(folder.path(), "eval --checkpoint o --confusion-matrix mine.csv");
  CHECK(refused.code == 2);
  CHECK_MESSAGE(refused.err.find("mine.csv") != std::string::npos, refused.err);
  CHECK(read_file(folder / "mine.csv") == "a,b\n");
}

TEST_CASE("norma eval: a folder gives its newest checkpoint, whatever its name") {
  const TemporaryFolder folder;
  const auto loss_of = [&](const std::string& checkpoint) {
    const Outcome outcome = run_norma(folder.path(), "eval --threads 1 --json - --checkpoint " + checkpoint);
    REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
    return test::parse_json(outcome.out)["evaluation"]["loss"].get<double>();
  };
  REQUIRE(run_norma(folder.path(), kTrain).code == 0);
  const Outcome older = run_norma(folder.path(),
                                  "train --model convnext_atto --patch-size 4 --dataset shapes --batch-size 4 --images "
                                  "4 --test-images 20 --threads 1 --quiet --output older");
  REQUIRE_MESSAGE(older.code == 0, older.err);
  std::filesystem::rename(folder / "o/last.safetensors", folder / "o/recovery-1-2.safetensors");
  const double newest = loss_of("o/recovery-1-2.safetensors");
  CHECK(loss_of("older") != newest);
  CHECK(loss_of("o") == newest);
  std::filesystem::copy_file(folder / "older/last.safetensors", folder / "o/last.safetensors");
  CHECK(loss_of("o") == newest);
}

TEST_CASE("norma eval: two results do not go into one file") {
  const TemporaryFolder folder;
  const auto error = [&](const std::string& names) {
    const Outcome outcome = run_norma(folder.path(), "eval --checkpoint o " + names);
    CHECK(outcome.code == 2);
    return outcome.err;
  };
  const std::string text = "norma: eval: --json: expected another file than that of --confusion-matrix, got '";
  CHECK(error("--json a --confusion-matrix a") == text + "a'\n");
  CHECK(error("--json ./a --confusion-matrix " + (folder / "a").string()) == text + "./a'\n");
  std::filesystem::create_symlink("b", folder / "a");
  CHECK(error("--json a --confusion-matrix b") == text + "a'\n");
  CHECK(error("--json w.safetensors --output w.safetensors") ==
        "norma: eval: --json: expected another file than that of --output, got 'w.safetensors'\n");
  CHECK(error("--confusion-matrix w.safetensors --output w.safetensors") ==
        "norma: eval: --confusion-matrix: expected another file than that of --output, got 'w.safetensors'\n");
  CHECK(folder.names() == std::vector<std::string>{"a"});
}

TEST_CASE("norma: bytes that are no UTF-8 and escape sequences reach no terminal") {
  const TemporaryFolder folder;
  const Outcome eval = run_norma(folder.path(), "eval --checkpoint \"$(printf 'a\\377\\033[31mb')\"");
  CHECK(eval.err == "norma: safetensors: cannot open a??[31mb: No such file or directory\n");
  const Outcome option = run_norma(folder.path(), "train --epochs \"$(printf '\\302')\"");
  CHECK(option.err == "norma: train: --epochs: expected a whole number from 1 to 1000000, got ?\n");
  const Outcome train = run_norma(folder.path(),
                                  "train --model convnext_atto --patch-size 4 --dataset shapes "
                                  "--batch-size 4 --images 8 --test-images 4 --quiet --threads 1 --output "
                                  "\"$(printf 'o\\377\\033')\"");
  CHECK_MESSAGE(train.code == 0, train.err);
  CHECK_MESSAGE(train.out.find("; o?"
                               "?/last.safetensors\n") != std::string::npos,
                train.out);
  CHECK(train.out.find('\x1B') == std::string::npos);
}

TEST_CASE("norma eval --convert-norm: other norms, and a file of their weights") {
  const TemporaryFolder folder;
  REQUIRE(run_norma(folder.path(), kTrain + " --norm batch").code == 0);
  const std::string convert = "eval --checkpoint o --threads 1 --norm group:8 --convert-batches 2 ";
  const Outcome converted = run_norma(folder.path(), convert + "--convert-norm calibrate --output g.safetensors");
  CHECK_MESSAGE(converted.code == 0, converted.err);
  CHECK(converted.out.starts_with("convert-norm: batch → group:8, calibrate; differences over 8 training images, "));
  CHECK(converted.out.find("\nweights are written to g.safetensors\nconvnext_atto group:8 on shapes: accuracy ") !=
        std::string::npos);
  const Outcome again = run_norma(folder.path(),
                                  "eval --checkpoint g.safetensors --model convnext_atto --patch-size 4 --norm group:8 "
                                  "--dataset shapes --batch-size 4 --test-images 20 --threads 1");
  CHECK_MESSAGE(again.code == 0, again.err);
  const auto figures = [](const std::string& out) {
    const size_t begin = out.find("accuracy ");
    return out.substr(begin, out.find(" (20 images") - begin);
  };
  CHECK(figures(again.out) == figures(converted.out));

  const Outcome trained =
      run_norma(folder.path(),
                "train --model convnext_atto --patch-size 4 --dataset shapes --batch-size 4 --images 8 --test-images "
                "20 --threads 1 --output p --initial-checkpoint o/last.safetensors --norm group:8 --convert-norm "
                "calibrate --convert-batches 2");
  CHECK_MESSAGE(trained.code == 0, trained.err);
  CHECK_MESSAGE(trained.out.find("before training: test " + figures(converted.out).substr(0, 16)) != std::string::npos,
                trained.out);

  const Outcome taken = run_norma(folder.path(), convert + "--convert-norm fold --output g.safetensors");
  CHECK(taken.code == 2);
  CHECK(taken.err == "norma: eval: --output: expected a name that is not taken, got 'g.safetensors'\n");
  const Outcome refused = run_norma(folder.path(),
                                    "eval --checkpoint o --threads 1 --norm frn --convert-norm calibrate --output "
                                    "f.safetensors");
  CHECK(refused.code == 2);
  CHECK(
      refused.err.starts_with("norma: calibrate_norms: 'stem.1': expected a norm whose output is weight · v + bias, "));
  CHECK(!std::filesystem::exists(folder / "f.safetensors"));
}

TEST_CASE("norma eval, export: another norm than that of the weights is warned of, unless --convert-norm says how") {
  const TemporaryFolder folder;
  const std::string data = "--dataset shapes --batch-size 4 --test-images 4 --threads 1 ";
  REQUIRE(run_norma(folder.path(), "train --model convnext_atto --patch-size 4 --images 4 --quiet --output o " + data)
              .code == 0);
  const auto said = [&](const std::string& arguments) {
    const Outcome outcome = run_norma(folder.path(), arguments);
    CHECK_MESSAGE(outcome.code == 0, outcome.err);
    return outcome.err;
  };
  const std::string eval = "eval --checkpoint o --threads 1 --quiet ";
  CHECK(said(eval) == "");
  CHECK(said(eval + "--norm layer2d") == "");
  CHECK_MESSAGE(said(eval + "--norm group:8").find("the weights were trained with norm layer2d") != std::string::npos,
                said(eval + "--norm group:8"));
  CHECK(said(eval + "--norm group:8 --convert-norm keep") == "");
  CHECK(said("export --checkpoint o --norm group:8 --threads 1 --output x.onnx")
            .find("the weights were trained with norm layer2d") != std::string::npos);
}
