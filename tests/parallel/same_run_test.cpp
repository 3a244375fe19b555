#include "session/resume.h"
#include "small_runs.h"
#include "support.h"
#include "train/training_state.h"

#include <string>

using namespace norma;
using train::difference_of_facts;

TEST_CASE("facts of a run: the first line that differs is named, with what each has") {
  const std::string first = "version\t1.2.0\nbyte order\tlittle endian\n--lr\t0.1\n";
  CHECK(difference_of_facts(first, first).empty());
  CHECK(difference_of_facts(first, "version\t1.3.0\nbyte order\tlittle endian\n--lr\t0.2\n") ==
        "version: expected 1.2.0, as rank 0 has, got 1.3.0");
  CHECK(difference_of_facts(first, "version\t1.2.0\nbyte order\tbig endian\n--lr\t0.1\n") ==
        "byte order: expected little endian, as rank 0 has, got big endian");
  CHECK(difference_of_facts(first, "version\t1.2.0\n--lr\t0.1\n") ==
        "byte order: expected little endian, as rank 0 has, got none");
  CHECK(difference_of_facts(first, first + "--opt\tsgd\n") == "--opt: expected none, as rank 0 has, got sgd");
  CHECK(difference_of_facts(first, "") == "version: expected 1.2.0, as rank 0 has, got none");
  CHECK(difference_of_facts("version\t1.2.0\n", "nonsense\n") == "version: expected 1.2.0, as rank 0 has, got none");
}

TEST_CASE("facts of a run: version, libraries, byte order, images, weights and recipe") {
  train::TrainingState run(test::small_recipe());
  const std::string facts = train::facts_of(run);
  for (const char* name : {"version", "libraries", "byte order", "training images", "contents of the training images",
                           "contents of the test images", "step", "weights", "--lr", "--model"}) {
    CAPTURE(name);
    CHECK(('\n' + facts).find('\n' + std::string(name) + '\t') != std::string::npos);
  }
  {
    const NoGradGuard no_grad;
    run.model->parameters().back().data<float>()[0] += 1;
  }
  CHECK(difference_of_facts(facts, train::facts_of(run)).starts_with("weights: expected "));
  CHECK(difference_of_facts(facts, train::facts_of(train::TrainingState(test::small_recipe()))).empty());
}
