#include "cli/program.h"

#include <algorithm>
#include <string>

using namespace norma;
using test::complaint;
using test::interrupt_norma;
using test::Outcome;
using test::read_file;
using test::run_norma;
using test::TemporaryFolder;

TEST_CASE("norma bench-norms: table on the terminal, files in the folder") {
  const TemporaryFolder folder;
  const std::string arguments =
      "bench-norms --quick --norms batch,layer2d --dtypes float32 --shapes images --batch-sizes 2 --channels 24,64 "
      "--img-sizes 7 --output 'it is'";
  const Outcome outcome = run_norma(folder.path(), arguments);
  CHECK_MESSAGE(outcome.code == 0, outcome.err);
  CHECK_MESSAGE(outcome.out.starts_with("2 shapes in float32: about 0:0"), outcome.out);
  CHECK(outcome.out.find("\nfloat32 [2, 24, 7, 7] (1 of 2)\n") != std::string::npos);
  CHECK(outcome.out.find("16 measurements in ") != std::string::npos);
  CHECK(outcome.out.find(read_file(folder / "it is/table.txt")) != std::string::npos);
  const std::string csv = read_file(folder / "it is/results.csv");
  CHECK(std::count(csv.begin(), csv.end(), '\n') == 17);
  CHECK(read_file(folder / "it is/results.json").find("\"device\": \"cpu\"") != std::string::npos);
  CHECK(read_file(folder / "it is/share.gp").find("share-float32.png") != std::string::npos);
  const bool drawn = outcome.out.find("plots: it is/share-*.png\n") != std::string::npos;
  CHECK(drawn != (outcome.out.find("no plots, since gnuplot is not there") != std::string::npos));
  CHECK(std::filesystem::exists(folder / "it is/share-float32.png") == drawn);

  const Outcome again = run_norma(folder.path(), arguments);
  CHECK(again.code == 2);
  CHECK(again.err == "norma: bench-norms: 'it is' holds other results (results.csv): choose another output folder\n");
}

TEST_CASE("norma bench-norms: an output folder whose name is not UTF-8 gets the results, too") {
  const TemporaryFolder folder;
  const Outcome outcome = run_norma(folder.path(),
                                    "bench-norms --quick --norms batch --dtypes float32 --batch-sizes 2 --channels 24 "
                                    "--img-sizes 7 --output o\xff");
  CHECK_MESSAGE(outcome.code == 0, outcome.err);
  CHECK(read_file(folder / "o\xff/results.json").find("--output 'o?'") != std::string::npos);
}

TEST_CASE("norma bench-norms: SIGINT writes what is measured") {
  const TemporaryFolder folder;
  const Outcome cut = interrupt_norma(folder.path(), "bench-norms --max-mb 1 --dtypes float32 --output o", "(2 of ");
  CHECK(cut.code == 130);
  CHECK_MESSAGE(cut.out.ends_with("interrupted\n"), cut.out);
  CHECK(read_file(folder / "o/results.csv").starts_with("norm,shape,"));
}

TEST_CASE("norma bench-norms: what is wrong is said before anything runs") {
  CHECK(complaint("bench-norms --norms bath") == "norma: norm: unknown norm 'bath'; did you mean 'batch'?\n");
  CHECK(complaint("bench-norms --formats nhwc").starts_with("norma: bench-norms: formats: unknown name 'nhwc'"));
  CHECK(complaint("bench-norms --max-mb -3") ==
        "norma: bench-norms: --max-mb: expected a whole number from 1 to 1048576, got -3\n");
  CHECK(complaint("bench-norms --device gpu") ==
        "norma: device: expected cpu, cuda, cuda:N or cuda-emulated, got 'gpu'\n");
  CHECK(complaint("bench-norms --quik") == "norma: bench-norms: unknown option '--quik'; did you mean '--quick'?\n");
}
